/* backend: what a device must be able to do. ops reaches a device through this struct and nothing else.
 *
 * A backend is a few memory and stream members and one function for each kernel family; a family's arguments are one
 * plain struct of ops/args.h. A NULL kernel means "this backend composes it from others" where ops names a composed
 * form, and is an error elsewhere. Kernels get checked arguments: shapes agree, spans lie inside their storages,
 * outputs do not overlap inputs unless they are the same elements.
 */
#ifndef RL_BACKEND_H
#define RL_BACKEND_H
#include "dtype.h"

typedef enum rl_device_type { RL_DEVICE_CPU = 0, RL_DEVICE_CUDA = 1, RL_DEVICE_META = 2, RL_DEVICE_TYPES } rl_device_type;

typedef struct rl_device {
    uint8_t type;  /* rl_device_type */
    int8_t index;  /* -1: the current one (never on a tensor of a device with an index) */
} rl_device;

static inline bool rl_device_same(rl_device a, rl_device b) { return a.type == b.type && a.index == b.index; }
/* "cpu", "cuda:0" in a thread-local ring of buffers: good for a message. */
const char *rl_device_text(rl_device d);

typedef void *rl_stream; /* a backend's stream; NULL on the CPU */

/* The kernel families, in the order of ops/args.h. X(enum suffix, argument struct). */
#define RL_KERNEL_FAMILIES(X)       \
    X(ELEMENTWISE, rl_elem_args)    \
    X(COPY, rl_copy_args)           \
    X(FILL, rl_fill_args)           \
    X(RANGE, rl_range_args)         \
    X(TRI, rl_tri_args)             \
    X(REDUCE, rl_reduce_args)       \
    X(SCAN, rl_scan_args)           \
    X(GEMM, rl_gemm_args)           \
    X(INDEX, rl_index_args)         \
    X(GATHER, rl_gather_args)       \
    X(SELECT, rl_select_args)       \
    X(NONZERO, rl_nonzero_args)     \
    X(SORT, rl_sort_args)           \
    X(SOFTMAX, rl_softmax_args)     \
    X(LAYER_NORM, rl_layer_norm_args) \
    X(CROSS_ENTROPY, rl_cross_entropy_args) \
    X(RANDOM, rl_random_args)       \
    X(OPTIM, rl_optim_args)         \
    X(MULTI_NORM, rl_multi_norm_args)

typedef enum rl_kernel {
#define X(name, args) RL_K_##name,
    RL_KERNEL_FAMILIES(X)
#undef X
    RL_K_COUNT
} rl_kernel;

typedef rl_status (*rl_kernel_run)(const void *args, rl_stream stream);

typedef struct rl_backend {
    const char *name;
    rl_device_type type;
    /* Device memory. `bytes` > 0. alloc may return cached memory; contents are undefined. */
    rl_status (*alloc)(int index, size_t bytes, rl_stream stream, void **out);
    void (*free)(int index, void *data, size_t bytes, rl_stream stream);
    /* Flat copies between host and device and within a device; ordered on `stream`. to_host returns when the bytes are there. */
    rl_status (*to_device)(int index, void *device_data, const void *host, size_t bytes, rl_stream stream);
    rl_status (*to_host)(int index, void *host, const void *device_data, size_t bytes, rl_stream stream);
    rl_status (*copy_peer)(int to_index, void *to, int from_index, const void *from, size_t bytes, rl_stream stream);
    /* Streams. current: of this thread on device `index`. wait: `stream` waits for what `other` holds now. */
    rl_stream (*stream_current)(int index);
    rl_status (*stream_wait)(rl_stream stream, rl_stream other);
    rl_status (*synchronize)(int index);
    int (*device_count)(void);
    int (*device_current)(void);
    rl_kernel_run kernels[RL_K_COUNT];
} rl_backend;

/* The backend of a device type, NULL when it is not compiled in or not available; then rl_fail has been called with why. */
const rl_backend *rl_backend_get(rl_device_type type);
/* Called once by a backend when it is loaded. */
void rl_backend_register(const rl_backend *backend);

#endif
