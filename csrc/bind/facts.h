/*
 * facts.h  Properties of a type that tell whether its arrays are more than their
 * memory: for gate.c.
 */
#ifndef GPO_FACTS_H
#define GPO_FACTS_H

#include "bind.h"
#include "dlpack.h"

typedef struct gpo_facts {
    PyTypeObject *type;       /* a reference, so that its address is not reused */
    const dl_exchange *table; /* DLPack's C exchange table, or NULL */
    bool torch;               /* it is torch.Tensor, or a subclass */
    bool tensor;              /* it has torch's protocol */
    bool overrides;           /* it overrides torch's or NumPy's functions */
    bool interface;           /* it has __array_interface__ */
    bool answers;             /* its __array__ may return any array */
    bool no_array;            /* of JAX, and neither an array nor a tracer */
    PyObject *requires_grad;  /* torch's C attribute, read without a lookup; or NULL */
    descrgetfunc get;         /* of requires_grad */
    PyCFunction is_conj, is_neg; /* torch's C methods, called without a lookup */
} gpo_facts;

/*
 * The properties of the type of `object`; NULL with an exception set.  Cached for a few
 * types, so that a call on a tensor looks up no name; the next call may replace them.
 */
const gpo_facts *gpo_facts_of(PyObject *object);

#endif
