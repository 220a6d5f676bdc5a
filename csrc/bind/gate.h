/*
 * gate.h  What makes an array more than its memory.
 */
#ifndef GPO_GATE_H
#define GPO_GATE_H

#include "bind.h"
#include "dlpack.h"

/*
 * Whether the memory of `object` says all of it; false with TypeError set, which names
 * the call that gives plain memory.  _host: of what np.asarray takes; _class and then
 * _tensor: of an array of another library, by its type and by its bits, that of the
 * conjugate only where it may be complex.  `*detach`: it requires grad and nobody asks.
 */
bool gpo_gate_host(PyObject *object, const char *argument);
bool gpo_gate_class(PyObject *object, const char *argument);
bool gpo_gate_tensor(PyObject *object, const char *argument, bool is_complex,
                     bool *detach);

/* The same, now that its memory is known: elements must have an address. */
bool gpo_gate_memory(PyObject *object, const char *argument, const gpo_array *array);

/*
 * After a library failed to give the memory of `object`, or gave none: TypeError with
 * what `object` says of itself, the library's exception its cause.  Always false.
 */
bool gpo_gate_explain(PyObject *object, const char *argument);

/*
 * After a library gave no memory for a result: TypeError if it gave an array without or
 * works on arrays without, else the library's exception stays.  Always false.
 */
bool gpo_gate_no_result(void);

/* DLPack's C exchange table of the type; NULL if it has none, or with an exception. */
const dl_exchange *gpo_gate_table(PyObject *object);

/* Whether it is a torch.Tensor of any class; the table was asked for before. */
bool gpo_gate_is_torch(PyObject *object);

/* Tells the library of `object` that its elements are others now. */
void gpo_gate_written(PyObject *object);

#endif
