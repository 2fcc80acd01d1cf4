/* Calls every guard of a bounded dense kernel through its C functions and prints one line per call; the test compares.
 * Built with -DLAUNCH=<function> -DTENSORS=<function>. Addresses are never read: the stand-in computes nothing. */
#include "k.h"

#include <stdio.h>
#include <string.h>

enum { M = 5, N = 256, K = 512 };
static k_failure failure;
static k_library *library;

static void show(const char *what, k_status status) {
    char text[256] = "";
    if (status) k_describe(&failure, text, sizeof text);
    printf("%s: %d %s\n", what, (int)status, text);
}

static k_tensor tensor(uintptr_t at, k_dtype dtype, int64_t rows, int64_t columns) {
    k_tensor made = { (void *)at, dtype, 0, 2, { rows, columns }, { columns, 1 } };
    return made;
}

int main(int argc, char **argv) {
    const char *directory = argc > 1 ? argv[1] : NULL;
    show("wrong version", k_open_as(K_VERSION + 1, K_PLAN, 0, directory, &library, &failure));
    show("wrong plan", k_open_as(K_VERSION, "another", 0, directory, &library, &failure));
    show("no device", k_open(9, directory, &library, &failure));
    k_status opened = k_open(0, directory, &library, &failure);
    show("open", opened);
    if (opened) return 0;

    const k_fp8_e4m3 *a = (void *)(uintptr_t)0x10000000, *b = (void *)(uintptr_t)0x20000000;
    const float *sa = (void *)(uintptr_t)0x30000000, *sb = (void *)(uintptr_t)0x40000000;
    k_bf16 *out = (void *)(uintptr_t)0x50000000;
    void *stream = (void *)(uintptr_t)0x51;
    show("good", LAUNCH(library, a, b, sa, sb, out, M, NULL, stream, &failure));
    show("no rows", LAUNCH(library, NULL, NULL, NULL, NULL, NULL, 0, NULL, stream, &failure));
    show("too many rows", LAUNCH(library, a, b, sa, sb, out, 65, NULL, stream, &failure));
    show("negative rows", LAUNCH(library, a, b, sa, sb, out, -1, NULL, stream, &failure));
    show("null", LAUNCH(library, a, NULL, sa, sb, out, M, NULL, stream, &failure));
    show("misaligned", LAUNCH(library, a + 8, b, sa, sb, out, M, NULL, stream, &failure));
    show("aliased", LAUNCH(library, a, b, sa, sb, (k_bf16 *)(uintptr_t)((uintptr_t)a + M * K - 16), M, NULL, stream, &failure));
    show("touching", LAUNCH(library, a, b, sa, sb, (k_bf16 *)(uintptr_t)((uintptr_t)a + M * K), M, NULL, stream, &failure));
    show("workspace", LAUNCH(library, a, b, sa, sb, out, M, out, stream, &failure));
    show("without a place for it", LAUNCH(library, a, NULL, sa, sb, out, M, NULL, stream, NULL));

    k_tensor ta = tensor(0x10000000, K_FP8_E4M3, M, K), tb = tensor(0x20000000, K_FP8_E4M3, N, K);
    k_tensor tsa = tensor(0x30000000, K_FP32, M, K / 128), tsb = tensor(0x40000000, K_FP32, N / 128, K / 128);
    k_tensor tout = tensor(0x50000000, K_BF16, M, N), bad;
    show("tensors", TENSORS(library, &ta, &tb, &tsa, &tsb, &tout, NULL, stream, &failure));
    bad = ta, bad.dtype = K_BF16;
    show("dtype", TENSORS(library, &bad, &tb, &tsa, &tsb, &tout, NULL, stream, &failure));
    bad = ta, bad.device = 1;
    show("device", TENSORS(library, &bad, &tb, &tsa, &tsb, &tout, NULL, stream, &failure));
    bad = tout, bad.shape[0] = M + 1;
    show("shape", TENSORS(library, &ta, &tb, &tsa, &tsb, &bad, NULL, stream, &failure));
    bad = tb, bad.strides[0] = K + 16;
    show("strides", TENSORS(library, &ta, &bad, &tsa, &tsb, &tout, NULL, stream, &failure));
    bad = tb, bad.rank = 1;
    show("rank", TENSORS(library, &ta, &bad, &tsa, &tsb, &tout, NULL, stream, &failure));
    bad = ta, bad.shape[0] = 65;
    show("rows", TENSORS(library, &bad, &tb, &tsa, &tsb, &tout, NULL, stream, &failure));
    show("missing", TENSORS(library, &ta, &tb, &tsa, &tsb, NULL, NULL, stream, &failure));
    printf("%s / %s\n", k_status_text(K_ERROR_RANGE), k_status_text((k_status)999));
    k_close(library);
    k_close(NULL);
    return 0;
}
