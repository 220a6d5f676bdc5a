/*
 * facts.h  What a type is known for, so far as it matters to what its arrays are beyond
 * their memory: for gate.c.
 */
#ifndef GPO_FACTS_H
#define GPO_FACTS_H

#include "bind.h"
#include "dlpack.h"

typedef struct gpo_facts {
    PyTypeObject *type;       /* kept: its address must not become another's */
    const dl_exchange *table; /* DLPack's C exchange table, or NULL */
    bool torch;               /* it is torch.Tensor, or a subclass */
    bool tensor;              /* it has torch's protocol */
    bool overrides;           /* and a meaning of its own under torch's or NumPy's */
    bool interface;           /* it has __array_interface__ */
    bool answers;             /* it has an __array__ that may give anything */
    bool no_array;            /* of JAX, and neither an array nor a tracer */
    PyObject *requires_grad;  /* torch's C attribute, asked without a lookup; or NULL */
    descrgetfunc get;         /* of requires_grad */
    PyCFunction is_conj, is_neg; /* torch's C methods, called without a lookup */
} gpo_facts;

/*
 * What the type of `object` is known for: NULL with an exception set.  Kept for a few
 * types, for a call on a tensor must not look any name up; another look may replace it.
 */
const gpo_facts *gpo_facts_of(PyObject *object);

#endif
