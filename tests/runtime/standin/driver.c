/* A driver without a GPU: it answers the calls that a launcher makes, checks what it can, and keeps a log of them.
 *
 * Built as libcuda.so.1 (-DSTANDIN_CUDA) or libamdhip64.so (-DSTANDIN_HIP). "Device memory" is host memory. An "object"
 * is text: `STANDIN`, then lines `symbol NAME`, `fixed BYTES`, `threads N`, `param OFFSET SIZE`. A launch logs grid,
 * block, dynamic LDS, stream and every parameter's bytes. A line `fill PARAM COUNT VALUE` makes a launch write so many
 * 16-bit values where that pointer parameter points: the nearest to computing that a stand-in comes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 64
#define LOG_BYTES (1 << 20)

typedef struct { size_t offset, size; } Param;
typedef struct {
    char symbol[256];
    int fixed, threads, dynamic, count, fill_param, fill_count, fill_value;
    Param params[MAX_PARAMS];
} Kernel;

static char log_text[LOG_BYTES];
static size_t log_used;
static char failing[64];
static int failing_code;
static int quiet;
static int live_modules, live_memory;
static char device_name[64] = "gfx950:sramecc+:xnack-";
#ifdef STANDIN_CUDA
static __thread void *contexts[16]; /* this thread's stack; the one on top is current */
static __thread int depth;
#define current (depth ? contexts[depth - 1] : NULL)
#endif
#ifdef STANDIN_HIP
static __thread int current_device;
#endif

/* A line is made by its thread alone and added to the log whole: launches come from several threads at once. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread char line[4096];
static __thread size_t line_used;

static void note(const char *format, ...) {
    va_list list;
    if (quiet) return;
    va_start(list, format);
    line_used += (size_t)vsnprintf(line + line_used, sizeof line - line_used, format, list);
    va_end(list);
    if (line_used >= sizeof line) abort();
    if (line[line_used - 1] != '\n') return;
    pthread_mutex_lock(&log_lock);
    if (log_used + line_used < LOG_BYTES) {
        memcpy(log_text + log_used, line, line_used + 1);
        log_used += line_used;
    }
    pthread_mutex_unlock(&log_lock);
    line_used = 0;
}

/* What a test asks: the log, a fresh start, the failure of the next calls of a name, silence while timing. */
const char *standin_log(void) { return log_text; }
void standin_reset(void) { log_used = 0; log_text[0] = 0; failing[0] = 0; }
void standin_fail(const char *name, int code) { snprintf(failing, sizeof failing, "%s", name); failing_code = code; }
void standin_quiet(int on) { quiet = on; }
void standin_device(const char *name) { snprintf(device_name, sizeof device_name, "%s", name); }
int standin_live(void) { return live_modules * 1000 + live_memory; }
void standin_forget_context(void) {
#ifdef STANDIN_CUDA
    depth = 0;
#endif
}

static int fails(const char *name) { return strcmp(failing, name) == 0 ? failing_code : 0; }
#define ENTER(name) do { int code_ = fails(name); if (code_) { note("%s -> %d\n", name, code_); return code_; } } while (0)

static int parse(Kernel *kernel, const char *image) {
    size_t offset, size;
    memset(kernel, 0, sizeof *kernel);
    if (strncmp(image, "STANDIN\n", 8)) return 0;
    kernel->threads = 1024;
    for (const char *line = image; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        sscanf(line, "symbol %255s", kernel->symbol);
        sscanf(line, "fixed %d", &kernel->fixed);
        sscanf(line, "threads %d", &kernel->threads);
        sscanf(line, "fill %d %d %x", &kernel->fill_param, &kernel->fill_count, (unsigned *)&kernel->fill_value);
        if (sscanf(line, "param %zu %zu", &offset, &size) == 2 && kernel->count < MAX_PARAMS)
            kernel->params[kernel->count++] = (Param){offset, size};
    }
    return 1;
}

static int module_load(void **module, const void *image) {
    Kernel *kernel = malloc(sizeof *kernel);
    if (!parse(kernel, image)) { free(kernel); return 200; }
    *module = kernel;
    live_modules++;
    return 0;
}

static int module_function(void **function, void *module, const char *name) {
    if (strcmp(((Kernel *)module)->symbol, name)) return 500;
    *function = module;
    return 0;
}

static void show_launch(Kernel *k, const uint32_t *s, void *stream, void **params, const unsigned char *buffer) {
    note("launch %s grid %u %u %u block %u %u %u lds %u stream %#lx args", k->symbol, s[0], s[1], s[2], s[3], s[4], s[5],
         s[6], (unsigned long)(uintptr_t)stream);
    for (int i = 0; i < k->count; i++) {
        const unsigned char *at = params ? params[i] : buffer + k->params[i].offset;
        note(" ");
        for (size_t byte = 0; byte < k->params[i].size; byte++) note("%02x", at[byte]);
    }
    note("\n");
}

static void fill(Kernel *k, void **params, const unsigned char *buffer) {
    uint16_t *target;
    if (!k->fill_count) return;
    memcpy(&target, params ? params[k->fill_param] : buffer + k->params[k->fill_param].offset, sizeof target);
    for (int i = 0; i < k->fill_count; i++) target[i] = (uint16_t)k->fill_value;
}

static int memory_new(void **pointer, size_t bytes) {
    if (posix_memalign(pointer, 256, bytes)) return 2;
    memset(*pointer, 0xcd, bytes);
    live_memory++;
    return 0;
}

#ifdef STANDIN_CUDA
int cuInit(unsigned flags) { ENTER("cuInit"); note("cuInit %u\n", flags); return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < 2 ? 0 : 101; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? 9 : 0; /* compute capability 9.0 */
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    ENTER("cuDevicePrimaryCtxRetain");
    note("cuDevicePrimaryCtxRetain %d\n", device);
    *context = (void *)(uintptr_t)(0xc0 + device);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { note("cuDevicePrimaryCtxRelease %d\n", device); return 0; }
int cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }
int cuCtxPushCurrent_v2(void *context) { contexts[depth++] = context; return 0; }
int cuCtxPushCurrent(void *context) { return cuCtxPushCurrent_v2(context); }
int cuCtxPopCurrent_v2(void **context) {
    if (!depth) return 201;
    *context = contexts[--depth];
    return 0;
}
int cuCtxPopCurrent(void **context) { return cuCtxPopCurrent_v2(context); }
int cuCtxGetCurrent(void **context) { *context = current; return 0; }
int cuCtxSetCurrent(void *context) { contexts[depth ? depth - 1 : depth++] = context; return 0; }
int cuCtxSynchronize(void) { ENTER("cuCtxSynchronize"); note("cuCtxSynchronize\n"); return 0; }
int cuModuleLoadData(void **module, const void *image) {
    ENTER("cuModuleLoadData");
    note("cuModuleLoadData\n");
    return current ? module_load(module, image) : 201;
}
int cuModuleUnload(void *module) { note("cuModuleUnload\n"); free(module); live_modules--; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER("cuModuleGetFunction");
    note("cuModuleGetFunction %s\n", name);
    return module_function(function, module, name);
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    ENTER("cuFuncGetAttribute");
    *value = attribute == 0 ? ((Kernel *)function)->threads : attribute == 1 ? ((Kernel *)function)->fixed : 0;
    return 0;
}
int cuFuncLoad(void *function) { (void)function; note("cuFuncLoad\n"); return 0; }
int cuFuncSetAttribute(void *function, int attribute, int value) {
    ENTER("cuFuncSetAttribute");
    note("cuFuncSetAttribute %d %d\n", attribute, value);
    ((Kernel *)function)->dynamic = attribute == 8 ? value : 0;
    return value <= 232448 ? 0 : 1;
}
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
    Kernel *kernel = function;
    if (index >= (size_t)kernel->count) return 1;
    *offset = kernel->params[index].offset;
    *size = kernel->params[index].size;
    return 0;
}
int cuMemAlloc_v2(void **pointer, size_t bytes) {
    ENTER("cuMemAlloc");
    note("cuMemAlloc %zu\n", bytes);
    return memory_new(pointer, bytes);
}
int cuMemAlloc(void **pointer, size_t bytes) { return cuMemAlloc_v2(pointer, bytes); }
int cuMemFree_v2(void *pointer) { note("cuMemFree\n"); free(pointer); live_memory--; return 0; }
int cuMemFree(void *pointer) { return cuMemFree_v2(pointer); }
int cuMemsetD8_v2(void *pointer, unsigned char value, size_t bytes) {
    note("cuMemsetD8 %u %zu\n", value, bytes);
    memset(pointer, value, bytes);
    return 0;
}
int cuMemsetD8(void *pointer, unsigned char value, size_t bytes) { return cuMemsetD8_v2(pointer, value, bytes); }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = (void *)0x5712; return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }
/* A map that can be read back: address, type, rank, extents, strides, box, swizzle, promotion. */
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *extents,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill) {
    uint64_t words[16] = {(uint64_t)(uintptr_t)address, (uint64_t)type, rank};
    ENTER("cuTensorMapEncodeTiled");
    note("cuTensorMapEncodeTiled\n");
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || interleave || fill || rank < 1 || rank > 3) return 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (steps[i] != 1 || (i && strides[i - 1] % 16)) return 1;
        words[3 + i] = extents[i];
        words[6 + i] = i ? strides[i - 1] : 0;
        words[9 + i] = box[i];
    }
    words[12] = (uint64_t)swizzle;
    words[13] = (uint64_t)promotion;
    memcpy(map, words, sizeof words);
    return 0;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned lds, void *stream, void **params, void **extra) {
    uint32_t shape[7] = {gx, gy, gz, bx, by, bz, lds};
    ENTER("cuLaunchKernel");
    if (!current) return 201;
    if (!params || extra) return 1;
    if (lds > 49152 && (int)lds > ((Kernel *)function)->dynamic) return 1;
    if (!quiet) show_launch(function, shape, stream, params, NULL);
    fill(function, params, NULL);
    return 0;
}
typedef struct { int id; char padding[4]; uint32_t value[16]; } Attribute;
typedef struct { uint32_t shape[7]; void *stream; const Attribute *attributes; unsigned count; } Config;
int cuLaunchKernelEx(const Config *config, void *function, void **params, void **extra) {
    const uint32_t *s = config->shape;
    _Static_assert(sizeof(Attribute) == 72 && sizeof(Config) == 56, "as in cuda.h");
    if (!config->count != !config->attributes || config->count > 4) return 1;
    for (unsigned i = 0; i < config->count; i++) {
        for (int word = 1; word < 16; word++)
            if (config->attributes[i].value[word]) return 1;
        if (!quiet) note("attribute %d %u\n", config->attributes[i].id, config->attributes[i].value[0]);
    }
    return cuLaunchKernel(function, s[0], s[1], s[2], s[3], s[4], s[5], s[6], config->stream, params, extra);
}
int cuGetErrorName(int code, const char **name) {
    *name = code == 201 ? "CUDA_ERROR_INVALID_CONTEXT" : code == 500 ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_OTHER";
    return 0;
}
int cuGetErrorString(int code, const char **text) { (void)code; *text = "as the stand-in was told"; return 0; }
int cuGetProcAddress_v2(const char *symbol, void **address, int version, uint64_t flags, int *status) {
    char versioned[128];
    static void *self;
    Dl_info info;
    (void)version, (void)flags;
    if (!self && dladdr((void *)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    snprintf(versioned, sizeof versioned, "%s_v2", symbol);
    *address = dlsym(self, versioned);
    if (!*address) *address = dlsym(self, symbol);
    if (status) *status = *address ? 0 : 1;
    return *address ? 0 : 500;
}
int cuGetProcAddress(const char *symbol, void **address, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, address, version, flags, NULL);
}
#endif

#ifdef STANDIN_HIP
int hipInit(unsigned flags) { ENTER("hipInit"); note("hipInit %u\n", flags); return 0; }
int hipGetDeviceCount(int *count) { *count = 2; return 0; }
int hipGetDevice(int *device) { *device = current_device; return 0; }
int hipSetDevice(int device) { note("hipSetDevice %d\n", device); current_device = device; return 0; }
int hipGetDevicePropertiesR0600(void *properties, int device) {
    (void)device;
    memset(properties, 0, 1472);
    strcpy(properties, "Stand-in gfx000 accelerator"); /* a name that must not be mistaken for the architecture */
    strcpy((char *)properties + 1160, device_name);
    return 0;
}
int hipModuleLoadData(void **module, const void *image) {
    ENTER("hipModuleLoadData");
    note("hipModuleLoadData\n");
    return module_load(module, image);
}
int hipModuleUnload(void *module) { note("hipModuleUnload\n"); free(module); live_modules--; return 0; }
int hipModuleGetFunction(void **function, void *module, const char *name) {
    ENTER("hipModuleGetFunction");
    note("hipModuleGetFunction %s\n", name);
    return module_function(function, module, name);
}
int hipFuncGetAttribute(int *value, int attribute, void *function) {
    ENTER("hipFuncGetAttribute");
    *value = attribute == 0 ? ((Kernel *)function)->threads : attribute == 1 ? ((Kernel *)function)->fixed : 0;
    return 0;
}
int hipMalloc(void **pointer, size_t bytes) {
    ENTER("hipMalloc");
    note("hipMalloc %zu\n", bytes);
    return memory_new(pointer, bytes);
}
int hipFree(void *pointer) { note("hipFree\n"); free(pointer); live_memory--; return 0; }
int hipMemset(void *pointer, int value, size_t bytes) {
    note("hipMemset %d %zu\n", value, bytes);
    memset(pointer, value, bytes);
    return 0;
}
int hipDeviceSynchronize(void) { note("hipDeviceSynchronize\n"); return 0; }
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **params, void **extra) {
    uint32_t shape[7] = {gx, gy, gz, bx, by, bz, lds};
    Kernel *kernel = function;
    ENTER("hipModuleLaunchKernel");
    if (params || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)3) return 1;
    Param last = kernel->count ? kernel->params[kernel->count - 1] : (Param){0, 0};
    if (*(size_t *)extra[3] < last.offset + last.size) return 1;
    if (!quiet) show_launch(kernel, shape, stream, NULL, extra[1]);
    fill(kernel, NULL, extra[1]);
    return 0;
}
const char *hipGetErrorName(int code) { return code == 209 ? "hipErrorNoBinaryForGpu" : "hipErrorOther"; }
const char *hipGetErrorString(int code) { (void)code; return "as the stand-in was told"; }
#endif
