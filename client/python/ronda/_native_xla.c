/* SPDX-License-Identifier: Apache-2.0 */

/* The handlers through which programs compiled by XLA call the C ABI. ronda.jax uses two: one for programs on CPUs, and
 * one for programs on NVIDIA's GPUs.
 *
 * XLA calls the handlers on its own threads, without the GIL. Only XlaHandlers() uses Python.
 *
 * A call runs one operation on any number of tensors. After the tensors, each call takes one more argument and returns
 * one more result: a ticket, which is an int32 without meaning. The ticket that one call returns is the argument of the
 * next call, so the calls of a program run in order. Both tickets of a call use the same memory. In broadcasts, sends
 * and barriers, each result also uses the memory of its argument. The program asks XLA for this aliasing, and XLA first
 * copies an argument that the program still needs. kFields below lists the call's attributes, which
 * ronda/jax/_primitive.py writes.
 *
 * On CPUs the ranks may run two programs in different orders. For this reason a call must not block an XLA thread for
 * long while it waits for other ranks. A call that has not ended after a few milliseconds (INLINE_S) returns a future.
 *
 * On GPUs XLA passes a stream. The operation runs after the work already enqueued on the stream, and before any later
 * work. The handler waits until the other ranks have called and the operation has been launched, but it does not wait
 * for the device. A call on a GPU returns no future, because XLA must not enqueue later work before the stream waits
 * for the result. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/ronda/_native.h"
#include "client/python/ronda/_native_fields.h"
#include "client/python/ronda/_xla.h"

/* How long a call waits, in seconds, before it starts a thread and returns a future. */
#define INLINE_S 0.002

/* -- The attributes of a call -- */

/* Operations, numbered as in the enum Kind in ronda/_xla.py. */
enum { kAllreduce, kBroadcast, kAllgather, kReducescatter, kAlltoall, kSend, kReceive, kBarrier };

typedef struct Call {
  const XlaFrame* frame;
  int64_t kind;
  int64_t op;
  int64_t wire;
  int64_t error_feedback;
  int64_t grouped; /* an allreduce whose tensors run together or not at all */
  int64_t process_set;
  int64_t peer; /* root, or the other rank of a message */
  int64_t tag;
  double prescale;
  double postscale;
  XlaArray splits;            /* alltoall: rows for each member; empty: equally many */
  XlaArray received;          /* alltoall with splits: rows from each member, which the program has assumed */
  XlaText names;              /* of the tensors, a line each */
  XlaText where;              /* for error texts: the program's line */
  ronda_call_options options; /* not an attribute: follows from the platform, the stream and process_set */
} Call;

#define CALL_FIELD(name, kind, dtype) \
  { #name, sizeof(#name) - 1, kind, dtype, offsetof(Call, name) }
static const struct {
  const char* name;
  size_t length;
  int kind;  /* kXlaScalar, kXlaArray or kXlaString */
  int dtype; /* of a scalar, or of the elements of an array */
  size_t offset;
} kFields[] = {
    CALL_FIELD(kind, kXlaScalar, kXlaInt64),       CALL_FIELD(op, kXlaScalar, kXlaInt64),
    CALL_FIELD(wire, kXlaScalar, kXlaInt64),       CALL_FIELD(peer, kXlaScalar, kXlaInt64),
    CALL_FIELD(tag, kXlaScalar, kXlaInt64),        CALL_FIELD(error_feedback, kXlaScalar, kXlaInt64),
    CALL_FIELD(grouped, kXlaScalar, kXlaInt64),    CALL_FIELD(process_set, kXlaScalar, kXlaInt64),
    CALL_FIELD(prescale, kXlaScalar, kXlaFloat64), CALL_FIELD(postscale, kXlaScalar, kXlaFloat64),
    CALL_FIELD(splits, kXlaArray, kXlaInt64),      CALL_FIELD(received, kXlaArray, kXlaInt64),
    CALL_FIELD(names, kXlaString, kXlaNone),       CALL_FIELD(where, kXlaString, kXlaNone),
};
enum { kFieldCount = sizeof(kFields) / sizeof(*kFields) };

/* Reads attribute `index` of the frame if it is the field `field`. Returns whether the attribute has been read. */
static int ReadAttribute(const XlaAttributes* attributes, int64_t index, size_t field, Call* call) {
  const XlaText* const name = attributes->names[index];
  if (name->size != kFields[field].length || memcmp(name->data, kFields[field].name, name->size) != 0) return 0;
  if (attributes->types[index] != kFields[field].kind) return 0;
  char* const into = (char*)call + kFields[field].offset;
  const void* const value = attributes->values[index];
  if (kFields[field].kind == kXlaString) {
    memcpy(into, value, sizeof(XlaText));
    return 1;
  }
  if (*(const int*)value != kFields[field].dtype) return 0; /* both structs begin with it */
  if (kFields[field].kind == kXlaArray) {
    memcpy(into, value, sizeof(XlaArray));
  } else {
    memcpy(into, ((const XlaScalar*)value)->value, sizeof(int64_t)); /* or double */
  }
  return 1;
}

/* Returns 1, or 0 if an attribute is missing, because a different version of this package wrote the program. */
static int ReadAttributes(const XlaFrame* frame, ronda_memory memory, Call* call) {
  size_t found = 0;
  memset(call, 0, sizeof(*call));
  call->frame = frame;
  for (int64_t i = 0; i < frame->attributes.size; ++i) {
    for (size_t field = 0; field < kFieldCount; ++field) found += ReadAttribute(&frame->attributes, i, field, call);
  }
  call->options.process_set = (ronda_process_set)call->process_set;
  call->options.memory = memory;
  return found == kFieldCount && frame->args.size > 0 && frame->results.size > 0;
}

static int IsOnHost(const ronda_call_options* options) { return options->memory == RONDA_MEMORY_HOST; }

/* -- Errors -- */

static XlaError* MakeXlaError(const XlaApi* api, ronda_status status, const char* text, const char* where) {
  char with_place[RONDA_ERROR_ROOM], message[RONDA_ERROR_ROOM + RONDA_MAX_NAME_LENGTH];
  snprintf(with_place, sizeof(with_place), "%s [%s]", text, where);
  const int code = CarryError(status, with_place, message, sizeof(message));
  XlaErrorArgs args = {{sizeof(args), NULL}, message, code};
  return api->error_create(&args);
}

/* -- A call in flight -- */

typedef struct Leaf {
  const char* name;     /* NULL: matched by order */
  const XlaBuffer* in;  /* in the frame, which is gone when the handler has returned; NULL: none, as for a receive */
  const XlaBuffer* out; /* likewise */
  int64_t rows;         /* of the output */
  ronda_handle handle;  /* 0: none */
} Leaf;

/* A call in flight. The leaves, the numbers of rows and the texts follow the struct in the same allocation. */
typedef struct Flight {
  const XlaApi* api;
  XlaFuture* future;
  ronda_context context; /* the rank that has called */
  char* where;
  FirstError error;
  ronda_call_options options;
  int64_t kind;
  size_t received_count; /* 0: any numbers of rows */
  int64_t* received;
  size_t count;
  Leaf leaves[];
} Flight;

static XlaError* ErrorOfFlight(const Flight* flight) {
  if (flight->error.status == RONDA_OK) return NULL;
  return MakeXlaError(flight->api, flight->error.status, flight->error.text, flight->where);
}

static char* CopyText(char** room, const XlaText* text) {
  char* const copy = *room;
  memcpy(copy, text->data, text->size);
  copy[text->size] = '\0';
  *room += text->size + 1;
  return copy;
}

/* Returns the call with the names and buffers of its leaves, or NULL if memory is exhausted. */
static Flight* BeginFlight(const Call* call) {
  const XlaFrame* const frame = call->frame;
  const size_t tensors = (size_t)frame->results.size - 1; /* without the ticket */
  const size_t count = tensors == 0 ? 1 : tensors;        /* a barrier may have none */
  const size_t received_bytes = call->received.size * sizeof(int64_t);
  Flight* const flight =
      malloc(sizeof(Flight) + count * sizeof(Leaf) + received_bytes + call->names.size + 1 + call->where.size + 1);
  if (flight == NULL) return NULL;
  flight->received_count = call->received.size;
  flight->received = (int64_t*)&flight->leaves[count];
  if (received_bytes > 0) memcpy(flight->received, call->received.data, received_bytes);
  char* room = (char*)&flight->received[flight->received_count];
  flight->api = frame->api;
  flight->future = NULL;
  flight->context = ronda_current();
  flight->error.status = RONDA_OK;
  flight->options = call->options;
  flight->kind = call->kind;
  flight->count = count;
  flight->where = CopyText(&room, &call->where);
  char* rest = CopyText(&room, &call->names);
  for (size_t i = 0; i < count; ++i) {
    const XlaBuffer* const in = (int64_t)i < frame->args.size - 1 ? frame->args.values[i] : NULL;
    const XlaBuffer* const out = i < tensors ? frame->results.values[i] : NULL;
    const int64_t rows = out != NULL && out->ndim > 0 ? out->shape[0] : 0;
    const char* const name = strsep(&rest, "\n");
    flight->leaves[i] = (Leaf){name == NULL || *name == '\0' ? NULL : name, in, out, rows, 0};
  }
  return flight;
}

/* -- Submission -- */

typedef struct ElementType {
  size_t bytes; /* of an element; 0: Ronda does not know the type */
  int dtype;    /* a ronda_dtype */
  int moves;    /* numbers of 8 bits with a fraction. They are sent as bytes, so operations that compute refuse them.
                   They are those of ronda/jax/_call.py */
} ElementType;

static ElementType TypeOf(int xla) {
#define COMPUTED(name, Name, NAME, bytes) [kXla##Name] = {bytes, RONDA_##NAME, 0},
#define MOVED(name) [kXla##name] = { 1, RONDA_UINT8, 1 }
  static const ElementType kTypes[] = {MOVED(F8E5M2),     MOVED(F8E4M3Fn),   MOVED(F8E4M3B11Fnuz),
                                       MOVED(F8E5M2Fnuz), MOVED(F8E4M3Fnuz), MOVED(F8E4M3),
                                       MOVED(F8E3M4),     MOVED(F8E8M0Fnu),  RONDA_DTYPES(COMPUTED)};
#undef MOVED
#undef COMPUTED
  static const ElementType kUnknown = {0, 0, 0};
  return xla >= 0 && xla < (int)(sizeof(kTypes) / sizeof(*kTypes)) ? kTypes[xla] : kUnknown;
}

static size_t BytesOf(const XlaBuffer* buffer) {
  size_t bytes = TypeOf(buffer->dtype).bytes;
  for (int64_t i = 0; i < buffer->ndim; ++i) bytes *= (size_t)buffer->shape[i];
  return bytes;
}

/* Sets the fields that all reductions have. */
#define SET_REDUCTION                               \
  args.op = (ronda_reduce_op)call->op;              \
  args.compression = (ronda_compression)call->wire; \
  args.prescale = call->prescale;                   \
  args.postscale = call->postscale

static ronda_allreduce_args AllreduceArgs(const Call* call, const Leaf* leaf, const ronda_tensor* tensor) {
  ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
  args.tensor = *tensor;
  args.call = call->options;
  args.input = leaf->in->data;
  args.output = leaf->out->data;
  args.error_feedback = (int)call->error_feedback;
  SET_REDUCTION;
  return args;
}

/* Defines a function that submits an operation. `set` sets the fields that are specific to the operation. */
#define SUBMIT(function, operation, OPERATION, set)                                        \
  static ronda_status function(const Call* call, Leaf* leaf, const ronda_tensor* tensor) { \
    ronda_##operation##_args args = RONDA_##OPERATION##_ARGS_INIT;                         \
    args.tensor = *tensor;                                                                 \
    args.call = call->options;                                                             \
    set;                                                                                   \
    return ronda_##operation##_async(&args, &leaf->handle);                                \
  }

/* Sets the fields of an operation that fills the rows of the output. */
#define SET_ROWS                 \
  args.input = leaf->in->data;   \
  args.output = leaf->out->data; \
  args.output_bytes = BytesOf(leaf->out)

SUBMIT(SubmitBroadcast, broadcast, BROADCAST, {
  args.data = leaf->out->data;
  args.root = (int)call->peer;
})
SUBMIT(SubmitReducescatter, reducescatter, REDUCESCATTER, {
  SET_ROWS;
  SET_REDUCTION;
})
SUBMIT(SubmitAllgather, allgather, ALLGATHER, SET_ROWS)
SUBMIT(SubmitAlltoall, alltoall, ALLTOALL, {
  SET_ROWS;
  args.splits = call->splits.size > 0 ? call->splits.data : NULL;
  args.split_count = (int)call->splits.size;
})
SUBMIT(SubmitSend, send, SEND, {
  args.input = leaf->in->data;
  args.to = (int)call->peer;
  args.tag = (int)call->tag;
})
SUBMIT(SubmitReceive, recv, RECV, {
  args.output = leaf->out->data;
  args.from = (int)call->peer;
  args.tag = (int)call->tag;
})

static ronda_status SubmitAllreduce(const Call* call, Leaf* leaf, const ronda_tensor* tensor) {
  const ronda_allreduce_args args = AllreduceArgs(call, leaf, tensor);
  /* If the other ranks have already called, the calling thread runs the operation on a single tensor itself, which is
   * faster. */
  if (call->frame->results.size == 2 && IsOnHost(&args.call)) {
    return ronda_allreduce_for(&args, INLINE_S, &leaf->handle);
  }
  return ronda_allreduce_async(&args, &leaf->handle);
}

typedef ronda_status (*SubmitLeaf)(const Call* call, Leaf* leaf, const ronda_tensor* tensor);
static const SubmitLeaf kSubmits[] = {
    [kAllreduce] = SubmitAllreduce, [kBroadcast] = SubmitBroadcast,
    [kAllgather] = SubmitAllgather, [kReducescatter] = SubmitReducescatter,
    [kAlltoall] = SubmitAlltoall,   [kSend] = SubmitSend,
    [kReceive] = SubmitReceive,
};

/* Returns 1, or 0 after recording an error if the operation does not support the element type. */
static int DescribeTensor(const Call* call, Flight* flight, const Leaf* leaf, ronda_tensor* tensor) {
  const XlaBuffer* const described = leaf->in != NULL ? leaf->in : leaf->out;
  const ElementType type = TypeOf(described->dtype);
  const int computes = call->kind == kAllreduce || call->kind == kReducescatter;
  *tensor = (ronda_tensor){leaf->name, (ronda_dtype)type.dtype, (int)described->ndim, described->shape};
  if (type.bytes > 0 && !(type.moves && computes)) return 1;
  RecordError(&flight->error, RONDA_ERROR_INVALID_ARGUMENT, "Ronda does not know the type of the array's elements");
  return 0;
}

/* If this rank cannot submit a tensor, it refuses the tensor; otherwise the other ranks would wait for it. */
static void RefuseName(const Call* call, const char* name, const char* reason) {
  if (call->kind == kSend || call->kind == kReceive) return;
  ronda_refuse(call->options.process_set, name, reason);
}

static void Refuse(const Call* call, const Flight* flight, const Leaf* leaf) {
  RefuseName(call, leaf->name, flight->error.text);
}

/* Like Refuse(), for all tensors of a call. */
static void RefuseAll(const Call* call, Flight* flight, const char* reason) {
  RecordError(&flight->error, RONDA_ERROR_INTERNAL, reason);
  for (size_t i = 0; i < flight->count; ++i) Refuse(call, flight, &flight->leaves[i]);
}

/* Like RefuseAll(), for a call without a Flight. Allocates no memory. */
static void RefuseWithoutFlight(const Call* call, const char* reason) {
  const char* next = call->names.data;
  const char* const end = next + call->names.size;
  for (int64_t i = 0; i < call->frame->results.size - 1; ++i) {
    const char* const line_end = next == end ? NULL : memchr(next, '\n', (size_t)(end - next));
    const size_t length = (size_t)((line_end == NULL ? end : line_end) - next);
    char name[RONDA_MAX_NAME_LENGTH + 1] = "";
    if (length < sizeof(name)) memcpy(name, next, length); /* a longer name is invalid on all ranks */
    RefuseName(call, *name == '\0' ? NULL : name, reason);
    next = line_end == NULL ? end : line_end + 1;
  }
}

static void SubmitOrRefuse(const Call* call, Flight* flight, Leaf* leaf) {
  ronda_tensor tensor;
  ronda_status status = RONDA_ERROR_INVALID_ARGUMENT;
  if (DescribeTensor(call, flight, leaf, &tensor)) {
    status = kSubmits[call->kind](call, leaf, &tensor);
    RecordStatus(&flight->error, status);
  }
  if (status == RONDA_ERROR_INVALID_ARGUMENT) Refuse(call, flight, leaf);
}

/* Submits the tensors as a group, named after its first tensor. */
static void SubmitGroup(const Call* call, Flight* flight) {
  ronda_allreduce_args* const args = malloc(flight->count * (sizeof(*args) + sizeof(ronda_handle)));
  if (args == NULL) {
    RecordError(&flight->error, RONDA_ERROR_OUT_OF_MEMORY, "no memory for the group");
    return;
  }
  ronda_handle* const handles = (ronda_handle*)&args[flight->count];
  int is_known = 1;
  for (size_t i = 0; i < flight->count; ++i) {
    ronda_tensor tensor;
    if (!DescribeTensor(call, flight, &flight->leaves[i], &tensor)) is_known = 0;
    args[i] = AllreduceArgs(call, &flight->leaves[i], &tensor);
  }
  if (is_known) {
    RecordStatus(&flight->error, ronda_grouped_allreduce_async(args, flight->count, flight->leaves[0].name, handles));
  }
  for (size_t i = 0; i < flight->count; ++i) {
    if (flight->error.status == RONDA_OK) flight->leaves[i].handle = handles[i];
    if (flight->error.status == RONDA_ERROR_INVALID_ARGUMENT) Refuse(call, flight, &flight->leaves[i]);
  }
  free(args);
}

/* Ignores the tensors of the call. They only make XLA wait: it starts the work that uses the call's results when the
 * barrier has ended. */
static void SubmitBarrier(const Call* call, Flight* flight) {
  RecordStatus(&flight->error, ronda_monitored_barrier_async(call->options.process_set, 0, &flight->leaves[0].handle));
}

static void Submit(const Call* call, Flight* flight) {
  if (call->kind == kBarrier) {
    SubmitBarrier(call, flight);
  } else if (call->grouped) {
    SubmitGroup(call, flight);
  } else {
    for (size_t i = 0; i < flight->count; ++i) SubmitOrRefuse(call, flight, &flight->leaves[i]);
  }
}

/* -- The end of a call -- */

/* Returns the name of a leaf for error texts. */
static const char* NameOf(const Leaf* leaf) { return leaf->name == NULL ? "an array without a name" : leaf->name; }

/* Writes "[2, 0, 5]". */
static void WriteCounts(const int64_t* counts, size_t size, char* text, size_t room) {
  size_t used = (size_t)snprintf(text, room, "[");
  for (size_t i = 0; i < size && used < room; ++i) {
    used += (size_t)snprintf(text + used, room - used, i == 0 ? "%lld" : ", %lld", (long long)counts[i]);
  }
  if (used < room) snprintf(text + used, room - used, "]");
}

/* Checks that each rank has sent the number of rows that the program expects. */
static void CheckCounts(Flight* flight, const Leaf* leaf, const int64_t* counts, size_t members) {
  const size_t bytes = members * sizeof(int64_t);
  if (flight->received_count == 0) return;
  if (flight->received_count == members && memcmp(counts, flight->received, bytes) == 0) return;
  char found[200], expected[200], text[600 + RONDA_MAX_NAME_LENGTH];
  WriteCounts(counts, members, found, sizeof(found));
  WriteCounts(flight->received, flight->received_count, expected, sizeof(expected));
  snprintf(text, sizeof(text),
           "'%s': the ranks have sent %s rows, but received_splits is %s: pass what each rank sends to this one",
           NameOf(leaf), found, expected);
  RecordError(&flight->error, RONDA_ERROR_MISMATCH, text);
}

static int IsOfRows(const Flight* flight) {
  return flight->kind == kAllgather || flight->kind == kAlltoall || flight->kind == kReducescatter;
}

/* Records the error of a wrong number of rows. `found` is the number of rows as text. */
static void RecordRows(Flight* flight, const Leaf* leaf, const char* found) {
  char text[300 + RONDA_MAX_NAME_LENGTH];
  snprintf(text, sizeof(text), "'%s': the ranks together have %s rows, but this rank's program expects %lld: %s",
           NameOf(leaf), found, (long long)leaf->rows,
           flight->received_count > 0 ? "pass received_splits that say what each rank sends to this one"
                                      : "under jit every rank passes an array of the same shape");
  RecordError(&flight->error, RONDA_ERROR_MISMATCH, text);
}

/* Checks that the received rows fill the output, whose size is fixed in the program. */
static void CheckRows(Flight* flight, const Leaf* leaf) {
  if (!IsOfRows(flight)) return;
  const void* data = NULL;
  const int64_t* counts = NULL;
  int64_t rows = 0;
  int members = 0;
  if (ronda_output(leaf->handle, &data, &rows, &counts, &members) != RONDA_OK) return;
  CheckCounts(flight, leaf, counts, (size_t)members);
  if (rows == leaf->rows) return;
  char found[24];
  snprintf(found, sizeof(found), "%lld", (long long)rows);
  RecordRows(flight, leaf, found);
}

/* Waits until the operation has ended, or, on a GPU, until the call's stream waits for the operation. */
static ronda_status WaitForLeaf(const Flight* flight, const Leaf* leaf, double timeout_s, int* done) {
  if (IsOnHost(&flight->options)) return ronda_synchronize_for(leaf->handle, timeout_s, done);
  return ronda_synchronize_on_stream_for(leaf->handle, flight->options.stream, timeout_s, done);
}

/* Waits for at most `timeout_s` seconds in total (negative: no limit) for the leaves from *next on. Returns whether all
 * leaves have ended. */
static int WaitForLeaves(Flight* flight, size_t* next, double timeout_s) {
  const double end = MonotonicSeconds() + timeout_s;
  for (; *next < flight->count; ++*next) {
    Leaf* const leaf = &flight->leaves[*next];
    if (leaf->handle == 0) continue;
    int done = 0;
    const double rest = timeout_s < 0 ? -1 : end - MonotonicSeconds();
    const ronda_status status = WaitForLeaf(flight, leaf, timeout_s < 0 || rest > 0 ? rest : 0, &done);
    if (status == RONDA_OK && !done) return 0;
    if (status == RONDA_OK) CheckRows(flight, leaf);
    if (status == RONDA_ERROR_INVALID_ARGUMENT && IsOfRows(flight)) RecordRows(flight, leaf, "more"); /* no room */
    RecordStatus(&flight->error, status);
    ronda_release(leaf->handle);
    leaf->handle = 0;
  }
  return 1;
}

/* Waits for a call that has returned a future. XLA then continues the program on this thread. */
static void* EndLater(void* context) {
  Flight* const flight = context;
  size_t next = 0;
  ronda_make_current(flight->context);
  WaitForLeaves(flight, &next, -1);
  XlaFutureArgs args = {{sizeof(args), NULL}, flight->future, ErrorOfFlight(flight)};
  const XlaApi* const api = flight->api;
  free(flight);
  args.error == NULL ? api->future_set_available(&args) : api->future_set_error(&args);
  return NULL;
}

/* Creates a future, and waits for the call on a new thread, or on this thread if no thread can start. Returns 0 if no
 * future can be created. */
static int EndInFuture(XlaFrame* frame, Flight* flight) {
  XlaFutureArgs args = {{sizeof(args), NULL}, NULL, NULL};
  if (frame->api->future_create(&args) != NULL) return 0;
  flight->future = args.future;
  frame->future = args.future;
  pthread_t thread;
  if (pthread_create(&thread, NULL, EndLater, flight) == 0) {
    pthread_detach(thread);
  } else {
    EndLater(flight);
  }
  return 1;
}

/* Returns whether the structs have all fields that this file reads. Version 0.1 does not include the last functions in
 * the size of its XlaApi, so only the version number shows that they exist. */
static int FitsLayout(const XlaFrame* frame) {
  const XlaApi* const api = frame->api;
  return api->version.major == XLA_MAJOR && api->version.minor >= XLA_FIRST_MINOR &&
         api->base.struct_size >= offsetof(XlaApi, not_used_either) &&
         frame->base.struct_size >= offsetof(XlaFrame, future);
}

/* Returns whether the program is from this version of Ronda and for this platform. */
static int IsKnown(const Call* call) {
  const XlaFrame* const frame = call->frame;
  const int64_t last = IsOnHost(&call->options) ? kBarrier : kReceive; /* a stream cannot wait for a barrier */
  return call->kind >= kAllreduce && call->kind <= last &&
         frame->args.values[frame->args.size - 1]->data == frame->results.values[frame->results.size - 1]->data;
}

/* Asks XLA for the stream of a program on a GPU. Returns NULL, or XLA's error. */
static XlaError* FindStream(Call* call) {
  if (IsOnHost(&call->options)) return NULL;
  XlaStreamArgs args = {{sizeof(args), NULL}, call->frame->context, NULL};
  XlaError* const error = call->frame->api->stream_get(&args);
  call->options.stream = args.stream;
  return error;
}

static XlaError* RunCall(XlaFrame* frame, ronda_memory memory) {
  Call call;
  if (!FitsLayout(frame)) {
    return MakeXlaError(frame->api, RONDA_ERROR_INTERNAL, "Ronda does not know this jaxlib's way to call it", "XLA");
  }
  if (!ReadAttributes(frame, memory, &call) || !IsKnown(&call)) {
    return MakeXlaError(frame->api, RONDA_ERROR_INTERNAL, "another version of Ronda has compiled the program", "XLA");
  }
  XlaError* error = FindStream(&call);
  Flight* const flight = BeginFlight(&call);
  if (flight == NULL) {
    static const char kReason[] = "no memory for the call";
    RefuseWithoutFlight(&call, kReason);
    return error != NULL ? error : MakeXlaError(frame->api, RONDA_ERROR_OUT_OF_MEMORY, kReason, "XLA");
  }
  if (error != NULL) {
    RefuseAll(&call, flight, "XLA has no stream for the call");
    free(flight);
    return error;
  }
  Submit(&call, flight);
  size_t next = 0;
  const int may_leave = IsOnHost(&call.options);
  if (may_leave && !WaitForLeaves(flight, &next, INLINE_S) && EndInFuture(frame, flight)) return NULL;
  WaitForLeaves(flight, &next, -1);
  error = ErrorOfFlight(flight);
  free(flight);
  return error;
}

/* -- The handlers -- */

/* The minor version of XLA that the handlers report. The handlers use only fields that all versions have. */
static int xla_minor = XLA_FIRST_MINOR;

static XlaError* Handle(XlaFrame* frame, ronda_memory memory) {
  for (XlaExtension* each = frame->base.extensions; each != NULL; each = each->next) {
    if (each->type != kXlaMetadata) continue;
    XlaMetadata* const metadata = ((XlaMetadataExtension*)each)->metadata;
    metadata->version.major = XLA_MAJOR;
    metadata->version.minor = xla_minor;
    metadata->traits = 0;
    return NULL;
  }
  return frame->stage == kXlaExecute ? RunCall(frame, memory) : NULL;
}

static XlaError* HandleOnCpu(XlaFrame* frame) { return Handle(frame, RONDA_MEMORY_HOST); }
static XlaError* HandleOnCuda(XlaFrame* frame) { return Handle(frame, RONDA_MEMORY_CUDA); }

static PyObject* XlaHandlers(PyObject* module, PyObject* value) {
  static const Field kMinor = {"minor", kInt, 0, 0};
  if (ReadField(&kMinor, value, &xla_minor, NULL) != 0) return NULL;
  return Py_BuildValue("{sNsN}", "cpu", PyCapsule_New((void*)HandleOnCpu, NULL, NULL), "CUDA",
                       PyCapsule_New((void*)HandleOnCuda, NULL, NULL));
}

PyMethodDef xla_methods[] = {
    ONE("xla_handlers", XlaHandlers),
    {NULL, NULL, 0, NULL},
};
