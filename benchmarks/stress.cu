// What a kernel under stress meets: memory that holds NaN wherever it has not written, another stream that keeps DRAM
// and L2 busy, and a judge of its bits.
typedef unsigned char byte;
typedef unsigned long long u64;

// All bytes of up to three results, and of the shared memory of every multiprocessor, become 0xff: NaN in every float format.
// What a launch leaves in shared memory would hide that the next one reads a stage too early.
extern "C" __global__ void __launch_bounds__(1024) unsettle(byte* first, long long first_bytes, byte* second,
                                                            long long second_bytes, byte* third, long long third_bytes,
                                                            long long shared_bytes) {
  extern __shared__ volatile unsigned shared[];
  for (int i = threadIdx.x; i < shared_bytes / 4; i += blockDim.x) shared[i] = ~0u;
  const long long step = (long long)gridDim.x * blockDim.x, from = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  for (long long i = from; i < first_bytes; i += step) first[i] = 0xff;
  for (long long i = from; i < second_bytes; i += step) second[i] = 0xff;
  for (long long i = from; i < third_bytes; i += step) third[i] = 0xff;
}

// Adds the number of bytes that are others than wanted.
extern "C" __global__ void __launch_bounds__(1024) differ(const byte* first, const byte* first_wanted, long long first_bytes,
                                                          const byte* second, const byte* second_wanted,
                                                          long long second_bytes, const byte* third,
                                                          const byte* third_wanted, long long third_bytes, u64* count) {
  const long long step = (long long)gridDim.x * blockDim.x, from = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  unsigned different = 0;
  for (long long i = from; i < first_bytes; i += step) different += first[i] != first_wanted[i];
  for (long long i = from; i < second_bytes; i += step) different += second[i] != second_wanted[i];
  for (long long i = from; i < third_bytes; i += step) different += third[i] != third_wanted[i];
  if (different) atomicAdd(count, (u64)different);
}

// Reads and writes a buffer from end to end until so many nanoseconds are over.
extern "C" __global__ void __launch_bounds__(512) load(uint4* buffer, long long bytes, long long nanoseconds) {
  u64 now, start;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  const long long count = bytes / 16, step = (long long)gridDim.x * blockDim.x;
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  do {
    for (int turn = 0; turn < 64; turn++) {
      uint4 value = buffer[at];
      value.x += 1;
      buffer[at] = value;
      at += step;
      if (at >= count) at -= count;
    }
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < (u64)nanoseconds);
}

// One fault for each tool of the sanitizer, by number: it has to be seen. 0: a word behind the end of a buffer. 1: what
// a neighbour wrote is read without a barrier. 2: half of a warp waits for a barrier that the other half does not reach.
extern "C" __global__ void __launch_bounds__(64) flawed(unsigned* buffer, long long words, long long fault) {
  __shared__ volatile unsigned shared[64];
  if (fault == 0 && threadIdx.x == 0) buffer[words] = 1;
  if (fault == 1) {
    shared[threadIdx.x] = threadIdx.x;
    buffer[threadIdx.x] = shared[(threadIdx.x + 32) % 64];
  }
  if (fault == 2 && threadIdx.x % 32 < 16) __syncthreads();
}
