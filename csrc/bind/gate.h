/*
 * gate.h  Refuses arrays that are more than their memory.
 */
#ifndef GPO_GATE_H
#define GPO_GATE_H

#include "bind.h"
#include "dlpack.h"

/*
 * Whether the memory of `object` is all there is to it; false with TypeError set, which
 * names the call that gives plain memory.  _host is for objects that np.asarray
 * accepts.  _class and then _tensor are for arrays of other libraries: they check its
 * type and its bits, the conjugate bit only if it may be complex.  `*detach`: it
 * requires grad, but torch records nothing.
 */
bool gpo_gate_host(PyObject *object, const char *argument);
bool gpo_gate_class(PyObject *object, const char *argument);
bool gpo_gate_tensor(PyObject *object, const char *argument, bool is_complex,
                     bool *detach);

/* The same once its memory is known: elements must have an address. */
bool gpo_gate_memory(PyObject *object, const char *argument, const gpo_array *array);

/*
 * After a library failed to give the memory of `object`, or gave none: TypeError that
 * says what `object` is, with the library's exception as its cause.  Always false.
 */
bool gpo_gate_explain(PyObject *object, const char *argument);

/*
 * After a library gave no memory for a result: TypeError if the result has none, or if
 * a torch.func transform is active; else the library's exception stays.  Always false.
 */
bool gpo_gate_no_result(void);

/* DLPack's C exchange table of the type; NULL if it has none, or with an exception. */
const dl_exchange *gpo_gate_table(PyObject *object);

/* Whether it is a torch.Tensor or of a subclass; call gpo_gate_table first. */
bool gpo_gate_is_torch(PyObject *object);

/* Tells the library of `object` that its elements have changed. */
void gpo_gate_written(PyObject *object);

#endif
