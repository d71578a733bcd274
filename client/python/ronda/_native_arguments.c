/* SPDX-License-Identifier: Apache-2.0 */

/* Arguments and errors. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/ronda/_native.h"

/* The exception class of each status; NULL before set_error_types(). */
static PyObject* error_types[RONDA_ERROR_MEMBERSHIP + 1];

static PyObject* TypeOf(ronda_status status) {
  const int known = status > RONDA_OK && status <= RONDA_ERROR_MEMBERSHIP && error_types[status] != NULL;
  return known ? error_types[status] : PyExc_RuntimeError;
}

PyObject* MakeError(ronda_status status, const char* text) {
  PyObject* const message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
  if (message == NULL) return NULL;
  PyObject* const error = PyObject_CallFunctionObjArgs(TypeOf(status), message, NULL);
  Py_DECREF(message);
  return error;
}

PyObject* Raise(ronda_status status, const char* text) {
  PyObject* const error = MakeError(status, text);
  if (error == NULL) return NULL;
  PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_DECREF(error);
  return NULL;
}

PyObject* NoneOrRaise(ronda_status status) {
  if (status != RONDA_OK) return Raise(status, ronda_last_error());
  Py_RETURN_NONE;
}

PyObject* SetErrorTypes(PyObject* module, PyObject* types) {
  Py_ssize_t count = 0;
  PyObject* const elements = Elements(types, &count);
  if (elements == NULL) return NULL;
  if (count != RONDA_ERROR_MEMBERSHIP) {
    Py_DECREF(elements);
    return PyErr_Format(PyExc_ValueError, "set_error_types: %zd classes, but there are %d errors", count,
                        RONDA_ERROR_MEMBERSHIP);
  }
  for (int status = 1; status <= RONDA_ERROR_MEMBERSHIP; ++status) {
    PyObject* const before = error_types[status];
    error_types[status] = Element(elements, status - 1);
    Py_INCREF(error_types[status]);
    Py_XDECREF(before);
  }
  Py_DECREF(elements);
  Py_RETURN_NONE;
}

typedef struct ErrorArguments {
  int status;
  const char* message;
} ErrorArguments;

static const Field kErrorFields[] = {FIELD(ErrorArguments, kInt, status), FIELD(ErrorArguments, kText, message)};
static const Signature kError = SIGNATURE("error", kErrorFields, 2);

PyObject* ErrorOf(PyObject* module, PyObject* const* values, Py_ssize_t count) {
  ErrorArguments arguments = {0, NULL};
  Reader reader;
  BeginReading(&reader);
  const int failed = Read(&kError, values, count, &arguments, &reader);
  EndReading(&reader);
  if (failed) return NULL;
  return MakeError((ronda_status)arguments.status, arguments.message == NULL ? "" : arguments.message);
}

/* -- Memory -- */

typedef struct Block {
  struct Block* next;
  int64_t space[];
} Block;

void BeginReading(Reader* reader) {
  reader->keep = NULL;
  reader->is_on_gpu = 0;
  reader->blocks = NULL;
  reader->used = 0;
}

void EndReading(Reader* reader) {
  while (reader->blocks != NULL) {
    Block* const block = reader->blocks;
    reader->blocks = block->next;
    free(block);
  }
}

void* TakeMemory(Reader* reader, size_t bytes) {
  const size_t rounded = (bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
  if (rounded >= bytes && rounded <= sizeof(reader->space) - reader->used) {
    void* const memory = (char*)reader->space + reader->used;
    reader->used += rounded;
    return memset(memory, 0, rounded);
  }
  Block* const block = rounded < bytes ? NULL : calloc(1, sizeof(Block) + rounded);
  if (block == NULL) return PyErr_NoMemory();
  block->next = reader->blocks;
  reader->blocks = block;
  return block->space;
}

/* -- Sequences -- */

PyObject* Elements(PyObject* sequence, Py_ssize_t* count) {
  PyObject* elements = sequence;
  if (PyTuple_Check(sequence) || PyList_Check(sequence)) {
    Py_INCREF(elements);
  } else {
    elements = PySequence_Tuple(sequence);
    if (elements == NULL) return NULL;
  }
  *count = PyTuple_Check(elements) ? PyTuple_Size(elements) : PyList_Size(elements);
  return elements;
}

PyObject* Element(PyObject* elements, Py_ssize_t index) {
  return PyTuple_Check(elements) ? PyTuple_GetItem(elements, index) : PyList_GetItem(elements, index);
}

/* -- Fields: each function writes the value to a field of `into`, or returns -1 with an exception -- */

static int ToLong(const Field* field, PyObject* value, long least, long most, long* number) {
  *number = PyLong_AsLong(value);
  if (*number == -1 && PyErr_Occurred()) return -1;
  if (*number >= least && *number <= most) return 0;
  PyErr_Format(PyExc_OverflowError, "%s is %ld, which is not from %ld to %ld", field->name, *number, least, most);
  return -1;
}

static int ReadInt(const Field* field, PyObject* value, char* into) {
  long number = 0;
  if (ToLong(field, value, INT_MIN, INT_MAX, &number)) return -1;
  const int written = (int)number;
  memcpy(into + field->offset, &written, sizeof(written));
  return 0;
}

static int ReadSet(const Field* field, PyObject* value, char* into) {
  long number = 0;
  if (ToLong(field, value, 0, UINT32_MAX, &number)) return -1;
  const ronda_process_set written = (ronda_process_set)number;
  memcpy(into + field->offset, &written, sizeof(written));
  return 0;
}

static int ReadHandle(const Field* field, PyObject* value, char* into) {
  const int64_t number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) return -1;
  memcpy(into + field->offset, &number, sizeof(number));
  return 0;
}

static int ReadSize(const Field* field, PyObject* value, char* into) {
  const size_t number = PyLong_AsSize_t(value);
  if (number == (size_t)-1 && PyErr_Occurred()) return -1;
  memcpy(into + field->offset, &number, sizeof(number));
  return 0;
}

static int ReadAddress(const Field* field, PyObject* value, char* into) {
  void* const address = PyLong_AsVoidPtr(value);
  if (address == NULL && PyErr_Occurred()) return -1;
  memcpy(into + field->offset, &address, sizeof(address));
  return 0;
}

static int ReadReal(const Field* field, PyObject* value, char* into) {
  const double number = PyFloat_AsDouble(value);
  if (number == -1 && PyErr_Occurred()) return -1;
  memcpy(into + field->offset, &number, sizeof(number));
  return 0;
}

static int ReadFlag(const Field* field, PyObject* value, char* into) {
  const int truth = PyObject_IsTrue(value);
  if (truth < 0) return -1;
  memcpy(into + field->offset, &truth, sizeof(truth));
  return 0;
}

static int ReadText(const Field* field, PyObject* value, char* into) {
  const char* text = NULL;
  if (value != Py_None) {
    Py_ssize_t size = 0;
    text = PyUnicode_AsUTF8AndSize(value, &size); /* lives as long as the string */
    if (text == NULL) return -1;
    if (strlen(text) != (size_t)size) {
      PyErr_Format(PyExc_ValueError, "%s has a zero character in it: %R", field->name, value);
      return -1;
    }
  }
  memcpy(into + field->offset, &text, sizeof(text));
  return 0;
}

static int ReadBytes(const Field* field, PyObject* value, char* into, Reader* reader) {
  char* data = NULL;
  Py_ssize_t size = 0;
  if (value != Py_None && PyBytes_AsStringAndSize(value, &data, &size) != 0) return -1;
  reader->keep = value;
  const size_t written = (size_t)size;
  memcpy(into + field->offset, &data, sizeof(data));
  memcpy(into + field->count, &written, sizeof(written));
  return 0;
}

/* Returns the count of numbers, or -1 with an exception set. */
static int ReadInt64s(PyObject* value, Reader* reader, const int64_t** numbers) {
  Py_ssize_t count = 0;
  PyObject* const elements = Elements(value, &count);
  if (elements == NULL) return -1;
  int64_t* const copies = count > INT_MAX ? PyErr_NoMemory() : TakeMemory(reader, (size_t)count * sizeof(int64_t));
  Py_ssize_t done = 0;
  for (; copies != NULL && done < count; ++done) {
    /* The list may have become shorter, because converting an element may run Python code. */
    PyObject* const element = Element(elements, done);
    if (element == NULL) break;
    Py_INCREF(element);
    copies[done] = PyLong_AsLongLong(element);
    Py_DECREF(element);
    if (copies[done] == -1 && PyErr_Occurred()) break;
  }
  Py_DECREF(elements);
  if (copies == NULL || done < count) return -1;
  *numbers = copies;
  return (int)count;
}

static int ReadShape(const Field* field, PyObject* value, char* into, Reader* reader) {
  ronda_tensor* const tensor = (ronda_tensor*)(void*)(into + field->offset);
  tensor->ndim = ReadInt64s(value, reader, &tensor->shape);
  return tensor->ndim < 0 ? -1 : 0;
}

static int ReadNumbers(const Field* field, PyObject* value, char* into, Reader* reader) {
  if (value == Py_None) return 0;
  const int64_t* numbers = NULL;
  const int count = ReadInt64s(value, reader, &numbers);
  if (count < 0) return -1;
  memcpy(into + field->offset, &numbers, sizeof(numbers));
  memcpy(into + field->count, &count, sizeof(count));
  return 0;
}

static int ReadRanks(const Field* field, PyObject* value, char* into, Reader* reader) {
  const int64_t* numbers = NULL;
  const int count = ReadInt64s(value, reader, &numbers);
  if (count < 0) return -1;
  int* const ranks = TakeMemory(reader, (size_t)count * sizeof(int));
  if (ranks == NULL) return -1;
  for (int i = 0; i < count; ++i) {
    ranks[i] = (int)numbers[i];
    if (ranks[i] == numbers[i]) continue;
    PyErr_Format(PyExc_OverflowError, "%s: %lld is no rank", field->name, (long long)numbers[i]);
    return -1;
  }
  memcpy(into + field->offset, &ranks, sizeof(ranks));
  memcpy(into + field->count, &count, sizeof(count));
  return 0;
}

static int ReadRankLists(const Field* field, PyObject* value, char* into, Reader* reader) {
  Py_ssize_t count = 0;
  PyObject* const elements = Elements(value, &count);
  if (elements == NULL) return -1;
  ronda_rank_list* const lists =
      count > INT_MAX ? PyErr_NoMemory() : TakeMemory(reader, (size_t)count * sizeof(ronda_rank_list));
  static const Field kList = {"process_sets", kRanks, offsetof(ronda_rank_list, ranks),
                              offsetof(ronda_rank_list, count)};
  Py_ssize_t done = 0;
  for (; lists != NULL && done < count; ++done) {
    PyObject* const element = Element(elements, done);
    if (element == NULL || ReadRanks(&kList, element, (char*)&lists[done], reader) != 0) break;
  }
  Py_DECREF(elements);
  if (lists == NULL || done < count) return -1;
  const int written = (int)count;
  memcpy(into + field->offset, &lists, sizeof(lists));
  memcpy(into + field->count, &written, sizeof(written));
  return 0;
}

static int ReadStream(const Field* field, PyObject* value, char* into) {
  if (value == Py_None) return 0;
  ronda_call_options* const call = (ronda_call_options*)(void*)(into + field->offset);
  call->stream = PyLong_AsVoidPtr(value);
  if (call->stream == NULL && PyErr_Occurred()) return -1;
  call->memory = RONDA_MEMORY_CUDA;
  return 0;
}

int ReadField(const Field* field, PyObject* value, void* into, Reader* reader) {
  switch (field->kind) {
    case kHandle:
      return ReadHandle(field, value, into);
    case kInt:
      return ReadInt(field, value, into);
    case kSet:
      return ReadSet(field, value, into);
    case kSize:
      return ReadSize(field, value, into);
    case kAddress:
      return ReadAddress(field, value, into);
    case kReal:
      return ReadReal(field, value, into);
    case kFlag:
      return ReadFlag(field, value, into);
    case kText:
      return ReadText(field, value, into);
    case kShape:
      return ReadShape(field, value, into, reader);
    case kNumbers:
      return ReadNumbers(field, value, into, reader);
    case kRanks:
      return ReadRanks(field, value, into, reader);
    case kRankLists:
      return ReadRankLists(field, value, into, reader);
    case kBytes:
      return ReadBytes(field, value, into, reader);
    case kStream:
      reader->is_on_gpu = value != Py_None;
      return ReadStream(field, value, into);
    case kKeep:
      reader->keep = value;
      return 0;
    case kObject:
      memcpy((char*)into + field->offset, &value, sizeof(value));
      return 0;
  }
  PyErr_SetString(PyExc_SystemError, "an unknown kind of argument");
  return -1;
}

int Read(const Signature* signature, PyObject* const* values, Py_ssize_t count, void* into, Reader* reader) {
  if (count < signature->required || count > signature->most) {
    PyErr_Format(PyExc_TypeError, "%s() takes %d to %d arguments, not %zd", signature->function, signature->required,
                 signature->most, count);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (ReadField(&signature->fields[i], values[i], into, reader) != 0) return -1;
  }
  return 0;
}
