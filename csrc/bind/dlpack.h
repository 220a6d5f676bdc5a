/*
 * dlpack.h  The binary layout of DLPack 1.3, by which array libraries share memory:
 * tensors, the contents of the two capsules, the C exchange table of a type.
 * Declared after the public specification (dmlc.github.io/dlpack), whose own header is
 * licensed under Apache-2.0; only what gpuopt uses.
 */
#ifndef GPO_DLPACK_H
#define GPO_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 3 };

enum { DL_READ_ONLY = 1, DL_IS_COPIED = 2 }; /* flags of dl_versioned */

typedef enum dl_device_type {
    DL_CPU = 1,
    DL_CUDA = 2,
    DL_CUDA_HOST = 3,
    DL_CUDA_MANAGED = 13,
} dl_device_type;

typedef enum dl_type_code {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_COMPLEX = 5,
    DL_BOOL = 6,
} dl_type_code;

typedef struct dl_version {
    uint32_t major, minor;
} dl_version;

typedef struct dl_device {
    int32_t type; /* dl_device_type */
    int32_t id;
} dl_device;

typedef struct dl_dtype {
    uint8_t code; /* dl_type_code */
    uint8_t bits;
    uint16_t lanes;
} dl_dtype;

typedef struct dl_tensor {
    void *data;
    dl_device device;
    int32_t ndim;
    dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL means C order before version 1.2 */
    uint64_t byte_offset;
} dl_tensor;

/* The content of a capsule named "dltensor". */
typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

/*
 * The content of a capsule named "dltensor_versioned".  With an unknown major version
 * only `version`, `context` and `deleter` may be read.
 */
typedef struct dl_versioned {
    dl_version version;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

/*
 * The content of type(x).__dlpack_c_exchange_api__, a capsule named
 * "dlpack_exchange_api".  Every function returns 0, or -1 with a Python exception set,
 * and needs the GIL.
 */
typedef struct dl_exchange {
    dl_version version;
    struct dl_exchange *previous; /* the table of an older major version, or NULL */
    int (*allocate)(dl_tensor *prototype, dl_versioned **out, void *error_context,
                    void (*set_error)(void *error_context, const char *kind,
                                      const char *message));
    int (*from_object)(void *object, dl_versioned **out);
    int (*to_object)(dl_versioned *tensor, void **object); /* steals the tensor */
    int (*view_object)(void *object, dl_tensor *out);      /* may be NULL */
    int (*current_stream)(dl_device_type type, int32_t id, void **stream);
} dl_exchange;

#endif
