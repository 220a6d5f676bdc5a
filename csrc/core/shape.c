/*
 * shape.c  The dtype table and the arithmetic of shapes, strides and axes.
 */
#include "gpo.h"

const gpo_dtype_info gpo_dtypes[GPO_NDTYPES] = {
#define GPO_DTYPE(suffix, type, name, bytes, kind) {name, bytes, kind},
#include "dtypes.def"
#undef GPO_DTYPE
};

#define GPO_DTYPE(suffix, type, name, bytes, kind) \
    _Static_assert(sizeof(type) == (bytes), "dtypes.def: wrong size for " name);
#include "dtypes.def"
#undef GPO_DTYPE

bool
gpo_row_major(gpo_array *a)
{
    int64_t size = 1;   /* the product of all lengths */
    int64_t stride = 1; /* the product of the lengths that are not 0, as NumPy counts */
    bool fits = true;
    for (int d = a->ndim - 1; d >= 0 && fits; d--) {
        a->strides[d] = stride;
        size *= a->shape[d];
        fits =
            a->shape[d] == 0 || !__builtin_mul_overflow(stride, a->shape[d], &stride);
    }
    a->size = size;
    return fits && stride <= INT64_MAX / gpo_dtypes[a->dtype].bytes;
}

gpo_status
gpo_array_contiguous(gpo_error *error, gpo_array *a)
{
    if (!gpo_row_major(a)) {
        return gpo_fail(error, GPO_EVALUE, "array is too big; its size overflows");
    }
    a->present = true;
    return GPO_OK;
}

bool
gpo_array_is_contiguous(const gpo_array *a)
{
    if (a->size == 0) {
        return true;
    }
    int64_t stride = 1;
    for (int d = a->ndim - 1; d >= 0; d--) {
        if (a->shape[d] != 1 && a->strides[d] != stride) {
            return false;
        }
        stride *= a->shape[d];
    }
    return true;
}

gpo_status
gpo_axis(gpo_error *error, int64_t axis, int ndim, int *out)
{
    if (axis < -ndim || axis >= ndim) {
        return gpo_fail(error, GPO_EAXIS,
                        "axis %lld is out of bounds for array of dimension %d",
                        (long long)axis, ndim);
    }
    *out = (int)(axis < 0 ? axis + ndim : axis);
    return GPO_OK;
}
