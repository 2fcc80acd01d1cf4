/* One launch in one call: the guards of a launch record on torch tensors, the argument buffer, the driver's function.
 *
 * `prepare` takes a record as a row of integers (laid out by nkc/runtime/native.py, which is the only caller) and
 * returns the function `launch(*tensors, stream=None, workspace=None)`. It reads tensors through torch's DLPack
 * exchange table and evaluates the guards exactly. Whatever it does not recognise, and every call that a guard
 * refuses, goes to `fallback`, the launch in Python: only that one words a refusal, and it is the reference.
 *
 * Built against Python's limited API, so that one binary serves every version from 3.11 on. It includes nothing of
 * torch or of a driver, and imports nothing: addresses arrive as integers.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum {
    LAYOUT = 1, /* of the row of integers; native.py sends the same number */
    MAX_TENSORS = 16,
    MAX_RANK = 4,
    MAX_DIMS = 4,
    MAX_FIELDS = 32,
    MAX_PARAMETERS = 64,
    MAX_PAIRS = 64,
    MAX_STATUSES = 8,
    MAX_KERNARG_BYTES = 4096,
    MAX_ATTRIBUTE_BYTES = 16 * 72,
    MAP_BYTES = 128,
    MAPS_KEPT = 4096, /* per argument; more and the table is emptied, as in tensor_map.py */
};

/* DLPack 1.x, as far as it is read here: a tensor's description, and the table by which a library exchanges them. */
typedef struct {
    void *data;
    struct { int32_t type, id; } device;
    int32_t rank;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    const int64_t *shape, *strides;
    uint64_t byte_offset;
} Tensor;

typedef struct {
    struct { uint32_t major, minor; void *previous; } header;
    void *allocate, *to_managed, *from_managed;
    int (*describe)(void *object, Tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device, void **out);
} Exchange;

/* ceil(dim / divisor) rounded up to a multiple; `value` where dim is negative. */
typedef struct { int64_t value, dim, divisor, multiple; } Extent;
typedef struct {
    int64_t code, bits, item_bytes, alignment, rank;
    Extent shape[MAX_RANK], strides[MAX_RANK];
} TensorGuard;
typedef struct { int64_t tensor, axis, min, max; } Dim;
enum { FIELD_POINTER, FIELD_DIM, FIELD_WORKSPACE, FIELD_MAP, FIELD_KINDS };
typedef struct { int64_t offset, kind, index; } Field;
typedef struct { int64_t written, other; } Pair;
enum { STYLE_PARAMETERS, STYLE_BUFFER, STYLE_CONFIG, STYLES };

typedef struct {
    uint64_t pointer;
    int64_t dims[MAX_DIMS];
    unsigned char map[MAP_BYTES];
} MapEntry;
typedef struct { MapEntry *entries; size_t used, size; } MapTable; /* size is a power of two; a null pointer is free */
typedef struct { void *stream; uint64_t pointer; } Slot;

typedef int (*LaunchCall)(void *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void *, void **,
                          void **);
/* cuda.h's CUlaunchConfig. */
typedef struct { uint32_t shape[7]; void *stream, *attributes; uint32_t count; } Config;
typedef int (*ConfigCall)(const Config *, void *, void **, void **);

typedef struct {
    int64_t style, address, function, shape[7], device_type, device, attributes;
    int64_t tensor_count, dim_count, field_count, parameter_count, pair_count, status_count, has_workspace;
    TensorGuard tensors[MAX_TENSORS];
    Dim dims[MAX_DIMS];
    Field fields[MAX_FIELDS];
    int64_t parameters[MAX_PARAMETERS];
    Pair pairs[MAX_PAIRS];
    int64_t again[MAX_STATUSES]; /* statuses that the launch in Python knows to mend */
    size_t kernarg_bytes;
    unsigned char kernargs[MAX_KERNARG_BYTES];
    unsigned char attribute_bytes[MAX_ATTRIBUTE_BYTES];
    const Exchange *exchange;
    int closed;
    Slot *slots;
    size_t slot_count;
    MapTable maps[MAX_TENSORS];
} Plan;

typedef struct {
    PyObject_HEAD
    Plan *plan;
    PyObject *types;     /* a tuple: the exact types that `exchange` describes */
    PyObject *fallback;  /* launch(*tensors, stream=, workspace=) */
    PyObject *handle;    /* stream object -> int */
    PyObject *workspace; /* stream -> address of its workspace, or None */
    PyObject *makers;    /* a tuple per tensor: (address, *dims) -> bytes of its map, or None */
    PyObject *failed;    /* status -> raises */
} PlanObject;

static PyObject *word_stream, *word_workspace;
static PyTypeObject *plan_type;

/* ---- tensor maps, kept by address and dims ---- */

static size_t map_place(const MapTable *table, uint64_t pointer, const int64_t *dims, int64_t count) {
    uint64_t hash = pointer;
    for (int64_t i = 0; i < count; i++) hash = (hash ^ (uint64_t)dims[i]) * 0x9e3779b97f4a7c15u;
    hash *= 0x9e3779b97f4a7c15u;
    size_t at = (size_t)(hash >> 32) & (table->size - 1);
    for (;; at = (at + 1) & (table->size - 1)) {
        const MapEntry *entry = &table->entries[at];
        if (!entry->pointer) return at;
        if (entry->pointer == pointer && !memcmp(entry->dims, dims, (size_t)count * sizeof *dims)) return at;
    }
}

/* Room for one more entry. Zero, or -1 with an exception. */
static int map_room(MapTable *table, int64_t count) {
    if (table->used >= MAPS_KEPT) {
        memset(table->entries, 0, table->size * sizeof *table->entries);
        table->used = 0;
    }
    if (table->size && table->used * 2 < table->size) return 0;
    MapTable larger = {NULL, table->used, table->size ? table->size * 2 : 16};
    larger.entries = PyMem_Calloc(larger.size, sizeof *larger.entries);
    if (!larger.entries) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < table->size; i++)
        if (table->entries[i].pointer)
            larger.entries[map_place(&larger, table->entries[i].pointer, table->entries[i].dims, count)] =
                table->entries[i];
    PyMem_Free(table->entries);
    *table = larger;
    return 0;
}

/* Copy the map of an address to `to`, asking Python for one that is new. Zero, or -1 with an exception. */
static int map_fetch(PlanObject *self, int64_t tensor, uint64_t pointer, const int64_t *dims, unsigned char *to) {
    Plan *plan = self->plan;
    MapTable *table = &plan->maps[tensor];
    if (table->size) {
        const MapEntry *entry = &table->entries[map_place(table, pointer, dims, plan->dim_count)];
        if (entry->pointer) {
            memcpy(to, entry->map, MAP_BYTES);
            return 0;
        }
    }
    PyObject *given = PyTuple_New((Py_ssize_t)(1 + plan->dim_count));
    if (!given) return -1;
    for (int64_t i = 0; i <= plan->dim_count; i++) {
        PyObject *value = i ? PyLong_FromLongLong(dims[i - 1]) : PyLong_FromUnsignedLongLong(pointer);
        if (!value) {
            Py_DECREF(given);
            return -1;
        }
        PyTuple_SetItem(given, (Py_ssize_t)i, value);
    }
    PyObject *made = PyObject_CallObject(PyTuple_GetItem(self->makers, (Py_ssize_t)tensor), given);
    Py_DECREF(given);
    if (!made) return -1;
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(made, &bytes, &size) || size != MAP_BYTES || map_room(table, plan->dim_count)) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_SystemError, "a tensor map of %zd bytes", size);
        Py_DECREF(made);
        return -1;
    }
    MapEntry *entry = &table->entries[map_place(table, pointer, dims, plan->dim_count)];
    table->used += !entry->pointer;
    entry->pointer = pointer;
    memcpy(entry->dims, dims, (size_t)plan->dim_count * sizeof *dims);
    memcpy(entry->map, bytes, MAP_BYTES);
    memcpy(to, bytes, MAP_BYTES);
    Py_DECREF(made);
    return 0;
}

/* ---- guards ---- */

static int64_t ceil_div(int64_t value, int64_t by) { return by == 1 ? value : (value + by - 1) / by; }

static int64_t extent_of(const Extent *extent, const int64_t *dims) {
    if (extent->dim < 0) return extent->value;
    int64_t groups = ceil_div(dims[extent->dim], extent->divisor);
    return ceil_div(groups, extent->multiple) * extent->multiple;
}

enum Verdict { MEETS, EMPTY, REFUSED };

/* guards.py's `check`, without words: what the tensors are, and the values of the bounded dims. */
static enum Verdict check(const Plan *plan, const Tensor *given, uint64_t *pointers, int64_t *dims) {
    int empty = 0;
    for (int64_t i = 0; i < plan->tensor_count; i++)
        if (given[i].rank != plan->tensors[i].rank || !given[i].strides) return REFUSED;
    for (int64_t i = 0; i < plan->dim_count; i++) {
        const Dim *dim = &plan->dims[i];
        dims[i] = given[dim->tensor].shape[dim->axis];
        if (dims[i] < dim->min || dims[i] > dim->max) return REFUSED;
        empty |= !dims[i];
    }
    for (int64_t i = 0; i < plan->tensor_count; i++) {
        const TensorGuard *guard = &plan->tensors[i];
        const Tensor *tensor = &given[i];
        pointers[i] = (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
        if (tensor->dtype.code != guard->code || tensor->dtype.bits != guard->bits || tensor->dtype.lanes != 1)
            return REFUSED;
        if (tensor->device.type != plan->device_type || tensor->device.id != plan->device) return REFUSED;
        for (int64_t axis = 0; axis < guard->rank; axis++) {
            int64_t size = tensor->shape[axis];
            if (size != extent_of(&guard->shape[axis], dims)) return REFUSED;
            if (!empty && size > 1 && tensor->strides[axis] != extent_of(&guard->strides[axis], dims)) return REFUSED;
        }
        if (!empty && (pointers[i] & (uint64_t)(guard->alignment - 1) || !pointers[i])) return REFUSED;
    }
    return empty ? EMPTY : MEETS;
}

/* The bytes from a tensor's first element to the end of its last; the tensor meets its guard. */
static uint64_t span_of(const TensorGuard *guard, const Tensor *tensor) {
    int64_t last = 0;
    for (int64_t axis = 0; axis < guard->rank; axis++)
        if (tensor->shape[axis] > 1) last += (tensor->shape[axis] - 1) * tensor->strides[axis];
    return (uint64_t)((last + 1) * guard->item_bytes);
}

static int overlaps(const Plan *plan, const Tensor *given, const uint64_t *pointers) {
    uint64_t spans[MAX_TENSORS];
    for (int64_t i = 0; i < plan->tensor_count; i++) spans[i] = span_of(&plan->tensors[i], &given[i]);
    for (int64_t i = 0; i < plan->pair_count; i++) {
        int64_t a = plan->pairs[i].written, b = plan->pairs[i].other;
        if (pointers[a] < pointers[b] + spans[b] && pointers[b] < pointers[a] + spans[a]) return 1;
    }
    return 0;
}

/* ---- the launch ---- */

static PyObject *fall_back(PlanObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names) {
    PyObject *positional = PyTuple_New(count), *named = NULL, *result = NULL;
    if (!positional) return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(given[i]);
        PyTuple_SetItem(positional, i, given[i]);
    }
    if (names) {
        named = PyDict_New();
        if (!named) goto done;
        for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++)
            if (PyDict_SetItem(named, PyTuple_GetItem(names, i), given[count + i])) goto done;
    }
    if (self->fallback)
        result = PyObject_Call(self->fallback, positional, named);
    else
        PyErr_SetString(PyExc_RuntimeError, "the kernel was collected");
done:
    Py_DECREF(positional);
    Py_XDECREF(named);
    return result;
}

/* Zero and the stream's handle; 1 where only Python knows what this is; -1 with an exception. */
static int stream_of(PlanObject *self, PyObject *stream, void **out) {
    const Plan *plan = self->plan;
    if (!stream || stream == Py_None) {
        if (!plan->exchange->current_stream((int32_t)plan->device_type, (int32_t)plan->device, out)) return 0;
        PyErr_Clear();
        return 1;
    }
    PyObject *number = NULL;
    if (!PyLong_CheckExact(stream)) {
        number = PyObject_CallFunctionObjArgs(self->handle, stream, NULL);
        if (!number) return -1;
        stream = number;
    }
    unsigned long long value = PyLong_AsUnsignedLongLong(stream);
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 1;
    }
    *out = (void *)(uintptr_t)value;
    return 0;
}

/* Zero and the workspace that a stream owns, or -1 with an exception. */
static int workspace_of(PlanObject *self, void *stream, uint64_t *out) {
    Plan *plan = self->plan;
    for (size_t i = 0; i < plan->slot_count; i++)
        if (plan->slots[i].stream == stream) {
            *out = plan->slots[i].pointer;
            return 0;
        }
    PyObject *key = PyLong_FromVoidPtr(stream);
    PyObject *address = key ? PyObject_CallFunctionObjArgs(self->workspace, key, NULL) : NULL;
    Py_XDECREF(key);
    if (!address) return -1;
    *out = PyLong_AsUnsignedLongLong(address);
    Py_DECREF(address);
    if (PyErr_Occurred()) return -1;
    Slot *slots = PyMem_Realloc(plan->slots, (plan->slot_count + 1) * sizeof *slots);
    if (!slots) {
        PyErr_NoMemory();
        return -1;
    }
    slots[plan->slot_count] = (Slot){stream, *out};
    plan->slots = slots;
    plan->slot_count++;
    return 0;
}

/* Call the driver without the interpreter's lock: a full launch queue waits for the device. */
static int submit(const Plan *plan, void *stream, unsigned char *kernargs) {
    const int64_t *shape = plan->shape;
    uint32_t s[7];
    void *table[MAX_PARAMETERS];
    void *address = (void *)(uintptr_t)plan->address, *function = (void *)(uintptr_t)plan->function;
    size_t size = plan->kernarg_bytes;
    void *extra[] = {(void *)1, kernargs, (void *)2, &size, (void *)3}; /* HIP_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END */
    int status;
    for (int i = 0; i < 7; i++) s[i] = (uint32_t)shape[i];
    for (int64_t i = 0; i < plan->parameter_count; i++) table[i] = kernargs + plan->parameters[i];
    PyThreadState *state = PyEval_SaveThread();
    if (plan->style == STYLE_CONFIG) {
        Config config = {{0}, stream, (void *)(uintptr_t)plan->attribute_bytes, (uint32_t)plan->attributes};
        ConfigCall call;
        memcpy(config.shape, s, sizeof s);
        memcpy(&call, &address, sizeof call);
        status = call(&config, function, table, NULL);
    } else {
        LaunchCall call;
        memcpy(&call, &address, sizeof call);
        int buffer = plan->style == STYLE_BUFFER;
        status = call(function, s[0], s[1], s[2], s[3], s[4], s[5], s[6], stream, buffer ? NULL : table,
                      buffer ? extra : NULL);
    }
    PyEval_RestoreThread(state);
    return status;
}

static PyObject *launch(PyObject *bound, PyObject *const *given, Py_ssize_t count, PyObject *names) {
    PlanObject *self = (PlanObject *)bound;
    Plan *plan = self->plan;
    PyObject *stream = NULL;
    Tensor tensors[MAX_TENSORS];
    uint64_t pointers[MAX_TENSORS], workspace = 0;
    int64_t dims[MAX_DIMS] = {0};
    _Alignas(64) unsigned char kernargs[MAX_KERNARG_BYTES];
    void *handle = NULL;

    if (plan->closed || count != plan->tensor_count) return fall_back(self, given, count, names);
    if (names) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
            PyObject *name = PyTuple_GetItem(names, i);
            if (name == word_stream)
                stream = given[count + i];
            else if (name != word_workspace || given[count + i] != Py_None)
                return fall_back(self, given, count, names);
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *type = (PyObject *)Py_TYPE(given[i]);
        Py_ssize_t known = PyTuple_Size(self->types), at = 0;
        while (at < known && PyTuple_GetItem(self->types, at) != type) at++;
        if (at == known) return fall_back(self, given, count, names);
        if (plan->exchange->describe(given[i], &tensors[i])) {
            PyErr_Clear();
            return fall_back(self, given, count, names);
        }
    }
    switch (check(plan, tensors, pointers, dims)) {
    case EMPTY:
        Py_RETURN_NONE; /* no rows: nothing to do, and no grid of size zero */
    case REFUSED:
        return fall_back(self, given, count, names);
    case MEETS:
        break;
    }
    if (overlaps(plan, tensors, pointers)) return fall_back(self, given, count, names);
    switch (stream_of(self, stream, &handle)) {
    case 0:
        break;
    case 1:
        return fall_back(self, given, count, names);
    default:
        return NULL;
    }
    if (plan->has_workspace && workspace_of(self, handle, &workspace)) return NULL;
    memcpy(kernargs, plan->kernargs, plan->kernarg_bytes);
    for (int64_t i = 0; i < plan->field_count; i++) {
        const Field *field = &plan->fields[i];
        unsigned char *to = kernargs + field->offset;
        switch (field->kind) {
        case FIELD_POINTER:
            memcpy(to, &pointers[field->index], 8);
            break;
        case FIELD_DIM: {
            int32_t value = (int32_t)dims[field->index];
            memcpy(to, &value, 4);
            break;
        }
        case FIELD_WORKSPACE:
            memcpy(to, &workspace, 8);
            break;
        default:
            if (map_fetch(self, field->index, pointers[field->index], dims, to)) return NULL;
        }
    }
    int status = submit(plan, handle, kernargs);
    if (!status) Py_RETURN_NONE;
    for (int64_t i = 0; i < plan->status_count; i++)
        if (plan->again[i] == status) return fall_back(self, given, count, names);
    PyObject *code = PyLong_FromLong(status);
    PyObject *raised = code ? PyObject_CallFunctionObjArgs(self->failed, code, NULL) : NULL;
    Py_XDECREF(code);
    return raised;
}

/* ---- from a row of integers to a plan ---- */

typedef struct { const int64_t *next, *end; int short_; } Reader;

static int64_t take(Reader *reader) {
    if (reader->next == reader->end) {
        reader->short_ = 1;
        return 0;
    }
    return *reader->next++;
}

static int64_t take_below(Reader *reader, int64_t limit) {
    int64_t value = take(reader);
    if (value < 0 || value >= limit) reader->short_ = 1;
    return reader->short_ ? 0 : value;
}

static Extent take_extent(Reader *reader, int64_t dim_count) {
    Extent extent = {take(reader), take(reader), take(reader), take(reader)};
    if (extent.dim >= dim_count || extent.divisor < 1 || extent.multiple < 1) reader->short_ = 1;
    return extent;
}

/* Nonzero where the row is whole and every index in it is one. */
static int read_plan(Plan *plan, Reader *from) {
    static const int64_t field_bytes[FIELD_KINDS] = {8, 4, 8, MAP_BYTES};
    if (take(from) != LAYOUT) return 0;
    plan->style = take_below(from, STYLES);
    plan->address = take(from);
    plan->function = take(from);
    for (int i = 0; i < 7; i++) plan->shape[i] = take(from);
    plan->device_type = take(from);
    plan->device = take(from);
    plan->attributes = take_below(from, MAX_ATTRIBUTE_BYTES / 72 + 1);
    plan->has_workspace = take_below(from, 2);
    plan->dim_count = take_below(from, MAX_DIMS + 1);
    plan->tensor_count = take_below(from, MAX_TENSORS + 1);
    for (int64_t i = 0; i < plan->tensor_count; i++) {
        TensorGuard *guard = &plan->tensors[i];
        guard->code = take(from);
        guard->bits = take(from);
        guard->item_bytes = take(from);
        guard->alignment = take(from);
        if (guard->alignment < 1 || guard->alignment & (guard->alignment - 1)) return 0;
        guard->rank = take_below(from, MAX_RANK + 1);
        for (int64_t axis = 0; axis < guard->rank; axis++) {
            guard->shape[axis] = take_extent(from, plan->dim_count);
            guard->strides[axis] = take_extent(from, plan->dim_count);
        }
    }
    for (int64_t i = 0; i < plan->dim_count; i++) {
        Dim *dim = &plan->dims[i];
        dim->tensor = take_below(from, plan->tensor_count);
        dim->axis = take_below(from, plan->tensors[dim->tensor].rank);
        dim->min = take(from);
        dim->max = take(from);
    }
    plan->field_count = take_below(from, MAX_FIELDS + 1);
    for (int64_t i = 0; i < plan->field_count; i++) {
        Field *field = &plan->fields[i];
        field->kind = take_below(from, FIELD_KINDS);
        field->index = take_below(from, field->kind == FIELD_DIM ? plan->dim_count : plan->tensor_count);
        field->offset = take_below(from, (int64_t)plan->kernarg_bytes - field_bytes[field->kind] + 1);
    }
    plan->parameter_count = take_below(from, MAX_PARAMETERS + 1);
    for (int64_t i = 0; i < plan->parameter_count; i++)
        plan->parameters[i] = take_below(from, (int64_t)plan->kernarg_bytes);
    plan->pair_count = take_below(from, MAX_PAIRS + 1);
    for (int64_t i = 0; i < plan->pair_count; i++) {
        plan->pairs[i].written = take_below(from, plan->tensor_count);
        plan->pairs[i].other = take_below(from, plan->tensor_count);
    }
    plan->status_count = take_below(from, MAX_STATUSES + 1);
    for (int64_t i = 0; i < plan->status_count; i++) plan->again[i] = take(from);
    return !from->short_ && from->next == from->end && plan->address && plan->tensor_count;
}

static PyMethodDef launch_method = {
    "launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL | METH_KEYWORDS,
    "launch(*tensors, stream=None, workspace=None)\n\nCheck every guard and launch; see nkc.runtime.launch."};

PyDoc_STRVAR(prepare_doc,
             "prepare(row, kernargs, attributes, exchange, types, fallback, handle, workspace, makers, failed)\n\n"
             "Return the launch function of a record. Errors: ValueError where the row is not as native.py writes it.");

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *given) {
    const char *row, *kernargs, *attributes;
    Py_ssize_t row_bytes, kernarg_bytes, attribute_bytes;
    PyObject *capsule, *types, *fallback, *handle, *workspace, *makers, *failed;
    if (!PyArg_ParseTuple(given, "y#y#y#OO!OOOO!O", &row, &row_bytes, &kernargs, &kernarg_bytes, &attributes,
                          &attribute_bytes, &capsule, &PyTuple_Type, &types, &fallback, &handle, &workspace,
                          &PyTuple_Type, &makers, &failed))
        return NULL;
    const Exchange *exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (!exchange) return NULL;
    if (exchange->header.major != 1 || !exchange->describe || !exchange->current_stream) {
        PyErr_SetString(PyExc_ValueError, "an exchange table of another DLPack");
        return NULL;
    }
    if (kernarg_bytes > MAX_KERNARG_BYTES || attribute_bytes > MAX_ATTRIBUTE_BYTES || row_bytes % 8) {
        PyErr_SetString(PyExc_ValueError, "more than a plan holds");
        return NULL;
    }
    PlanObject *self = PyObject_GC_New(PlanObject, plan_type);
    if (!self) return NULL;
    self->plan = PyMem_Calloc(1, sizeof *self->plan);
    self->types = self->fallback = self->handle = self->workspace = self->makers = self->failed = NULL;
    int64_t *numbers = PyMem_Malloc((size_t)row_bytes + 8); /* the row may lie anywhere */
    if (!self->plan || !numbers) {
        PyMem_Free(numbers);
        PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    memcpy(numbers, row, (size_t)row_bytes);
    Plan *plan = self->plan;
    plan->exchange = exchange;
    plan->kernarg_bytes = (size_t)kernarg_bytes;
    memcpy(plan->kernargs, kernargs, (size_t)kernarg_bytes);
    memcpy(plan->attribute_bytes, attributes, (size_t)attribute_bytes);
    Reader reader = {numbers, numbers + row_bytes / 8, 0};
    int sound = read_plan(plan, &reader) && attribute_bytes == plan->attributes * 72 &&
                PyTuple_Size(makers) == plan->tensor_count;
    PyMem_Free(numbers);
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "not a row of integers that describes a launch");
        Py_DECREF(self);
        return NULL;
    }
    PyObject *values[] = {types, fallback, handle, workspace, makers, failed};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) Py_INCREF(values[i]);
    self->types = types;
    self->fallback = fallback;
    self->handle = handle;
    self->workspace = workspace;
    self->makers = makers;
    self->failed = failed;
    PyObject_GC_Track(self);
    PyObject *function = PyCFunction_NewEx(&launch_method, (PyObject *)self, NULL);
    Py_DECREF(self);
    return function;
}

static int plan_traverse(PyObject *object, visitproc visit, void *arg) {
    PlanObject *self = (PlanObject *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->types);
    Py_VISIT(self->fallback);
    Py_VISIT(self->handle);
    Py_VISIT(self->workspace);
    Py_VISIT(self->makers);
    Py_VISIT(self->failed);
    return 0;
}

static int plan_clear(PyObject *object) {
    PlanObject *self = (PlanObject *)object;
    if (self->plan) self->plan->closed = 1;
    Py_CLEAR(self->types);
    Py_CLEAR(self->fallback);
    Py_CLEAR(self->handle);
    Py_CLEAR(self->workspace);
    Py_CLEAR(self->makers);
    Py_CLEAR(self->failed);
    return 0;
}

static void plan_dealloc(PyObject *object) {
    PlanObject *self = (PlanObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    plan_clear(object);
    if (self->plan) {
        for (int i = 0; i < MAX_TENSORS; i++) PyMem_Free(self->plan->maps[i].entries);
        PyMem_Free(self->plan->slots);
        PyMem_Free(self->plan);
    }
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

/* close(): from now on every launch goes to Python, which says that the library was closed. */
static PyObject *plan_close(PyObject *object, PyObject *Py_UNUSED(none)) {
    ((PlanObject *)object)->plan->closed = 1;
    Py_RETURN_NONE;
}

static PyMethodDef plan_methods[] = {
    {"close", plan_close, METH_NOARGS, "Send every further launch to Python."}, {NULL, NULL, 0, NULL}};
static PyType_Slot plan_slots[] = {{Py_tp_traverse, (void *)plan_traverse}, {Py_tp_clear, (void *)plan_clear},
                                   {Py_tp_dealloc, (void *)plan_dealloc},   {Py_tp_methods, plan_methods},
                                   {0, NULL}};
static PyType_Spec plan_spec = {
    "nkc.runtime._launch.Plan", sizeof(PlanObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, plan_slots};

static PyMethodDef functions[] = {{"prepare", prepare, METH_VARARGS, prepare_doc}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_launch", "See nkc.runtime.native.", -1, functions,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__launch(void) {
    plan_type = (PyTypeObject *)PyType_FromSpec(&plan_spec);
    word_stream = PyUnicode_InternFromString("stream");
    word_workspace = PyUnicode_InternFromString("workspace");
    if (!plan_type || !word_stream || !word_workspace) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module && PyModule_AddIntConstant(module, "LAYOUT", LAYOUT)) Py_CLEAR(module);
    return module;
}
