/* SPDX-License-Identifier: Apache-2.0 */

/* The kernel through which ronda.tensorflow calls the C ABI in TensorFlow graphs.
 *
 * The kernel implements the operation RondaAllreduce, on any number of tensors. ronda/tensorflow/_kernels.py adds such
 * operations to graphs. TensorFlow calls the kernel on its own threads, without the GIL. Only RegisterTensorflow() uses
 * Python.
 *
 * The kernel blocks its thread until the operation has ended. It cannot be asynchronous: as soon as the kernel's
 * function returns, TensorFlow 2.21 destroys the object that would signal completion. For this reason _calls.py makes
 * the operations of a graph run one after the other, in the same order on every rank. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/ronda/_native.h"
#include "client/python/ronda/_native_fields.h"
#include "client/python/ronda/_tensorflow.h"

#define OPERATION "RondaAllreduce"

/* TensorFlow's functions. The pointers are set once, before the kernel is registered. */
static TfApi api;

/* -- An operation of a graph -- */

/* The attributes, which ReadAttributes() sets. */
typedef struct Kernel {
  int64_t op;
  int64_t wire;
  double prescale;
  double postscale;
  size_t count; /* of tensors */
  char* name;
  char** names; /* of the tensors. All texts are in the block of the kernel */
} Kernel;

/* The 64-bit attributes. TensorFlow has no attributes of type double, so a double is passed as an integer with the same
 * bits. */
#define KERNEL_FIELD(name) \
  { #name, offsetof(Kernel, name) }
static const struct {
  const char* name;
  size_t offset;
} kFields[] = {KERNEL_FIELD(op), KERNEL_FIELD(wire), KERNEL_FIELD(prescale), KERNEL_FIELD(postscale)};
enum { kFieldCount = sizeof(kFields) / sizeof(*kFields) };

/* Writes the names of the tensors. The members of a group are named as in ronda.grouped_allreduce(). */
static void NameTensors(Kernel* kernel, char* room, size_t room_for_each) {
  if (kernel->count == 1) {
    kernel->names[0] = kernel->name;
    return;
  }
  for (size_t i = 0; i < kernel->count; ++i, room += room_for_each) {
    kernel->names[i] = room;
    snprintf(room, room_for_each, "%s.%zu", kernel->name, i);
  }
}

/* Returns the kernel of an operation. After an error returns NULL, and sets `status`. */
static Kernel* ReadAttributes(TfConstruction* construction, TfStatus* status) {
  int32_t count = 0;
  int32_t length = 0;
  int32_t ignored = 0;
  api.OpKernelConstruction_GetAttrSize(construction, "T", &count, &ignored, status);
  if (api.GetCode(status) != kTfOk) return NULL;
  api.OpKernelConstruction_GetAttrSize(construction, "tensor_name", &ignored, &length, status);
  if (api.GetCode(status) != kTfOk) return NULL;
  const size_t members = (size_t)count;
  const size_t room_for_each = (size_t)length + sizeof(".18446744073709551615");
  Kernel* const kernel = calloc(1, sizeof(Kernel) + members * sizeof(char*) + (members + 1) * room_for_each);
  if (kernel == NULL) {
    api.SetStatus(status, kTfExhausted, "no memory for the operation " OPERATION);
    return NULL;
  }
  kernel->count = members;
  kernel->names = (char**)(kernel + 1);
  kernel->name = (char*)(kernel->names + members);
  api.OpKernelConstruction_GetAttrString(construction, "tensor_name", kernel->name, (size_t)length, status);
  for (size_t i = 0; i < kFieldCount && api.GetCode(status) == kTfOk; ++i) {
    int64_t* const value = (int64_t*)((char*)kernel + kFields[i].offset);
    api.OpKernelConstruction_GetAttrInt64(construction, kFields[i].name, value, status);
  }
  if (api.GetCode(status) != kTfOk) {
    free(kernel);
    return NULL;
  }
  NameTensors(kernel, kernel->name + room_for_each, room_for_each);
  return kernel;
}

static void* CreateKernel(TfConstruction* construction) {
  TfStatus* const status = api.NewStatus();
  Kernel* const kernel = ReadAttributes(construction, status);
  if (kernel == NULL) api.OpKernelConstruction_Failure(construction, status);
  api.DeleteStatus(status);
  return kernel;
}

/* -- A call -- */

typedef struct Member {
  TfTensor* in;  /* NULL: the result takes the place of the argument */
  TfTensor* out; /* NULL after an error */
  int64_t shape[RONDA_MAX_NDIM];
} Member;

/* A call of the kernel. The members and the arguments follow the struct in the same allocation. */
typedef struct Call {
  const Kernel* kernel;
  TfContext* context;
  FirstError error;
  ronda_allreduce_args* args; /* of each member */
  Member members[];
} Call;

/* The ronda_dtype for each type number of TensorFlow. The definition of the operation allows only these types. */
#define DTYPE_OF(name, Name, NAME, bytes) [kTf##Name] = RONDA_##NAME,
static const ronda_dtype kDtypes[] = {RONDA_DTYPES(DTYPE_OF)};
#undef DTYPE_OF

/* Returns the call, still without tensors, or NULL if memory is exhausted. */
static Call* BeginCall(const Kernel* kernel, TfContext* context) {
  const size_t count = kernel->count;
  Call* const call = malloc(sizeof(Call) + count * (sizeof(Member) + sizeof(ronda_allreduce_args)));
  if (call == NULL) return NULL;
  call->kernel = kernel;
  call->context = context;
  call->error.status = RONDA_OK;
  call->args = (ronda_allreduce_args*)(call->members + count);
  for (size_t i = 0; i < count; ++i) {
    Member* const member = &call->members[i];
    member->in = member->out = NULL;
    call->args[i] = (ronda_allreduce_args)RONDA_ALLREDUCE_ARGS_INIT;
    call->args[i].tensor.name = kernel->names[i];
    call->args[i].op = (ronda_reduce_op)kernel->op;
    call->args[i].compression = (ronda_compression)kernel->wire;
    call->args[i].prescale = kernel->prescale;
    call->args[i].postscale = kernel->postscale;
  }
  return call;
}

/* Returns 1 if `status` is OK. If `status` is an error, records the error in the call, and returns 0. */
static int IsOk(Call* call, const TfStatus* status) {
  if (api.GetCode(status) == kTfOk) return 1;
  RecordError(&call->error, RONDA_ERROR_INTERNAL, api.Message(status));
  return 0;
}

/* Reads the type and the shape of an argument. Returns 1, or 0 after recording an error. */
static int DescribeTensor(Call* call, size_t index, TfStatus* status) {
  TfTensor* in = NULL;
  api.GetInput(call->context, (int)index, &in, status);
  if (!IsOk(call, status)) return 0;
  Member* const member = &call->members[index];
  ronda_tensor* const tensor = &call->args[index].tensor;
  tensor->dtype = kDtypes[api.TensorType(in)];
  tensor->ndim = api.NumDims(in);
  tensor->shape = member->shape;
  if (tensor->ndim > RONDA_MAX_NDIM) {
    char text[100 + RONDA_MAX_NAME_LENGTH];
    snprintf(text, sizeof(text), "'%s' has %d dimensions, and the most are %d", tensor->name, tensor->ndim,
             RONDA_MAX_NDIM);
    RecordError(&call->error, RONDA_ERROR_INVALID_ARGUMENT, text);
  }
  for (int i = 0; i < tensor->ndim && i < RONDA_MAX_NDIM; ++i) member->shape[i] = api.Dim(in, i);
  api.DeleteTensor(in);
  return call->error.status == RONDA_OK;
}

/* Finds the memory of an argument and of its result. TensorFlow reuses the argument's memory for the result if nothing
 * else references the argument, so this call must not reference it while TensorFlow decides. Returns 1, or 0 after
 * recording an error. */
static int FindBuffers(Call* call, size_t index, TfStatus* status) {
  Member* const member = &call->members[index];
  ronda_allreduce_args* const args = &call->args[index];
  const int input = (int)index;
  int forwarded = -1;
  member->out = api.ForwardInputOrAllocateOutput(call->context, &input, 1, input, member->shape, args->tensor.ndim,
                                                 &forwarded, status);
  if (!IsOk(call, status)) return 0;
  if (forwarded < 0) api.GetInput(call->context, input, &member->in, status);
  if (!IsOk(call, status)) return 0;
  args->output = api.TensorData(member->out);
  args->input = member->in == NULL ? args->output : api.TensorData(member->in);
  return 1;
}

static int TakeTensors(Call* call) {
  TfStatus* const status = api.NewStatus();
  int taken = 1;
  for (size_t i = 0; taken && i < call->kernel->count; ++i) {
    taken = DescribeTensor(call, i, status) && FindBuffers(call, i, status);
  }
  api.DeleteStatus(status);
  return taken;
}

/* If this rank cannot submit its tensors, it refuses the operation; otherwise the other ranks would wait for them. */
static void Reduce(Call* call) {
  const Kernel* const kernel = call->kernel;
  if (TakeTensors(call)) {
    const ronda_status status = kernel->count == 1 ? ronda_allreduce(call->args)
                                                   : ronda_grouped_allreduce(call->args, kernel->count, kernel->name);
    RecordStatus(&call->error, status);
    if (status != RONDA_ERROR_INVALID_ARGUMENT) return;
  }
  for (size_t i = 0; i < kernel->count; ++i) ronda_refuse(0, kernel->names[i], call->error.text);
}

static void EndCall(Call* call) {
  for (size_t i = 0; i < call->kernel->count; ++i) {
    const Member* const member = &call->members[i];
    if (member->in != NULL) api.DeleteTensor(member->in);
    if (member->out != NULL) api.DeleteTensor(member->out);
  }
  free(call);
}

static void Fail(TfContext* context, ronda_status status, const char* text) {
  char message[RONDA_ERROR_ROOM + 100];
  const int code = CarryError(status, text, message, sizeof(message));
  TfStatus* const failure = api.NewStatus();
  /* Avoids the code kTfUnavailable, for which TensorFlow would add a sentence about networks to the error. */
  api.SetStatus(failure, code == kTfUnavailable ? kTfUnknown : code, message);
  api.OpKernelContext_Failure(context, failure);
  api.DeleteStatus(failure);
}

static void Compute(void* kernel, TfContext* context) {
  Call* const call = BeginCall(kernel, context);
  if (call == NULL) {
    Fail(context, RONDA_ERROR_OUT_OF_MEMORY, "no memory for the call");
    return;
  }
  Reduce(call);
  if (call->error.status != RONDA_OK) Fail(context, call->error.status, call->error.text);
  EndCall(call);
}

/* -- Registration -- */

/* Gives each result the shape of its argument. */
static void InferShapes(TfShapes* shapes, TfStatus* status) {
  TfShape* const shape = api.NewShapeHandle();
  const int count = (int)api.ShapeInferenceContextNumInputs(shapes);
  for (int i = 0; i < count && api.GetCode(status) == kTfOk; ++i) {
    api.ShapeInferenceContextGetInput(shapes, i, shape, status);
    if (api.GetCode(status) == kTfOk) api.ShapeInferenceContextSetOutput(shapes, i, shape, status);
  }
  api.DeleteShapeHandle(shape);
}

/* Looks up all functions in TensorFlow's library, which must be loaded. Returns whether the library has all of them. */
static int FindFunctions(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == NULL) return 0;
#define FIND(result, name, arguments) \
  if ((*(void**)& api.name = dlsym(library, "TF_" #name)) == NULL) return 0;
  TF_FUNCTIONS(FIND)
#undef FIND
  return 1;
}

static void DefineOperation(TfStatus* status) {
  TfOperation* const operation = api.NewOpDefinitionBuilder(OPERATION);
  api.OpDefinitionBuilderAddInput(operation, "tensors: T");
  api.OpDefinitionBuilderAddOutput(operation, "reduced: T");
#define NAME_AND_COMMA(name, Name, NAME, bytes) #name ", "
  api.OpDefinitionBuilderAddAttr(operation, "T: list({" RONDA_DTYPES(NAME_AND_COMMA) "})");
#undef NAME_AND_COMMA
  api.OpDefinitionBuilderAddAttr(operation, "tensor_name: string");
  for (size_t i = 0; i < kFieldCount; ++i) {
    char description[100];
    snprintf(description, sizeof(description), "%s: int", kFields[i].name);
    api.OpDefinitionBuilderAddAttr(operation, description);
  }
  /* The other ranks wait for the operation, so TensorFlow must neither remove it nor merge it with another. */
  api.OpDefinitionBuilderSetIsStateful(operation, true);
  api.OpDefinitionBuilderSetShapeInferenceFunction(operation, InferShapes);
  api.RegisterOpDefinition(operation, status);
}

static PyObject* RegisterTensorflow(PyObject* module, PyObject* path) {
  static int is_registered = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(path, NULL);
  if (text == NULL) return NULL;
  if (!is_registered && FindFunctions(text)) {
    TfStatus* const status = api.NewStatus();
    DefineOperation(status);
    if (api.GetCode(status) == kTfOk) {
      TfKernel* const kernel = api.NewKernelBuilder(OPERATION, "CPU", CreateKernel, Compute, free);
      api.RegisterKernelBuilder(OPERATION, kernel, status);
    }
    is_registered = api.GetCode(status) == kTfOk;
    api.DeleteStatus(status);
  }
  return PyBool_FromLong(is_registered);
}

PyMethodDef tensorflow_methods[] = {
    ONE("register_tensorflow", RegisterTensorflow),
    {NULL, NULL, 0, NULL},
};
