/* SPDX-License-Identifier: Apache-2.0 */

/* The part of XLA's foreign function interface through which XLA calls a handler. The interface is a C ABI, which
 * jaxlib documents in xla/ffi/api/c_api.h. This file declares the layouts under Ronda's own names, so that Ronda does
 * not need jaxlib's headers. The layouts are those of the versions 0.1 (jaxlib 0.5.0) to 0.3 (jaxlib 0.10.2). Every
 * struct begins with its size, so that XLA can add fields at its end. */
#ifndef RONDA_CLIENT_PYTHON_XLA_H_
#define RONDA_CLIENT_PYTHON_XLA_H_

#include <stddef.h>
#include <stdint.h>

#define XLA_MAJOR 0
#define XLA_FIRST_MINOR 1 /* the first with futures */

typedef struct XlaError XlaError;   /* XLA's own */
typedef struct XlaFuture XlaFuture; /* likewise */

typedef enum XlaStage { kXlaInstantiate = 0, kXlaPrepare = 1, kXlaInitialize = 2, kXlaExecute = 3 } XlaStage;

/* The first fields of every argument struct. */
typedef struct XlaBase {
  size_t struct_size;
  struct XlaExtension* extensions; /* NULL: none */
} XlaBase;

typedef struct XlaExtension {
  size_t struct_size;
  int type;
  struct XlaExtension* next;
} XlaExtension;

typedef struct XlaVersion {
  XlaBase base;
  int major;
  int minor;
} XlaVersion;

/* A call extension through which XLA asks a handler for its version. */
enum { kXlaMetadata = 1 };
typedef struct XlaMetadata {
  size_t struct_size;
  XlaVersion version; /* out */
  uint32_t traits;    /* out */
} XlaMetadata;
typedef struct XlaMetadataExtension {
  XlaExtension base;
  XlaMetadata* metadata;
} XlaMetadataExtension;

/* -- Functions of XLA -- */

typedef struct XlaErrorArgs {
  XlaBase base;
  const char* message; /* XLA copies it */
  int code;
} XlaErrorArgs;

typedef struct XlaStreamArgs {
  XlaBase base;
  void* context; /* of the call */
  void* stream;  /* out; a cudaStream_t on the platform CUDA */
} XlaStreamArgs;

typedef struct XlaFutureArgs {
  XlaBase base;
  XlaFuture* future; /* out of future_create */
  XlaError* error;   /* future_set_error only, which takes it over */
} XlaFutureArgs;

typedef struct XlaApi {
  XlaBase base;
  XlaVersion version;
  const void* internal;
  XlaError* (*error_create)(XlaErrorArgs*);
  void (*not_used[3])(void);
  XlaError* (*stream_get)(XlaStreamArgs*);
  void (*not_used_either[8])(void);
  XlaError* (*future_create)(XlaFutureArgs*);
  XlaError* (*future_set_available)(XlaFutureArgs*);
  XlaError* (*future_set_error)(XlaFutureArgs*);
} XlaApi;

/* -- The call of a handler -- */

/* Element types, numbered as in xla::PrimitiveType. Types that Ronda also has use Ronda's names. */
enum {
  kXlaNone = 0,
  kXlaBool = 1,
  kXlaInt8 = 2,
  kXlaInt16 = 3,
  kXlaInt32 = 4,
  kXlaInt64 = 5,
  kXlaUint8 = 6,
  kXlaUint16 = 7,
  kXlaUint32 = 8,
  kXlaUint64 = 9,
  kXlaFloat16 = 10,
  kXlaFloat32 = 11,
  kXlaFloat64 = 12,
  kXlaBfloat16 = 16,
  kXlaF8E5M2 = 19,
  kXlaF8E4M3Fn = 20,
  kXlaF8E4M3B11Fnuz = 23,
  kXlaF8E5M2Fnuz = 24,
  kXlaF8E4M3Fnuz = 25,
  kXlaF8E4M3 = 28,
  kXlaF8E3M4 = 29,
  kXlaF8E8M0Fnu = 33
};

typedef struct XlaBuffer {
  XlaBase base;
  int dtype;
  void* data;
  int64_t ndim;
  int64_t* shape;
} XlaBuffer;

/* Arguments, or results. */
typedef struct XlaValues {
  XlaBase base;
  int64_t size;
  int* types; /* kXlaBuffer: the only one that there is */
  XlaBuffer** values;
} XlaValues;
enum { kXlaBuffer = 1 };

typedef struct XlaText { /* without a zero at its end */
  const char* data;
  size_t size;
} XlaText;

typedef struct XlaScalar {
  int dtype;
  void* value;
} XlaScalar;

typedef struct XlaArray {
  int dtype;
  size_t size;
  void* data;
} XlaArray;

typedef struct XlaAttributes {
  XlaBase base;
  int64_t size;
  int* types; /* kXlaArray: an XlaArray; kXlaScalar: an XlaScalar; kXlaString: an XlaText */
  XlaText** names;
  void** values;
} XlaAttributes;
enum { kXlaArray = 1, kXlaScalar = 3, kXlaString = 4 };

typedef struct XlaFrame {
  XlaBase base;
  const XlaApi* api; /* NULL in the call that asks for the version, in older versions */
  void* context;
  XlaStage stage;
  XlaValues args;
  XlaValues results;
  XlaAttributes attributes;
  XlaFuture* future; /* out; the handler's work goes on until it is available. struct_size does not count it */
} XlaFrame;

#endif /* RONDA_CLIENT_PYTHON_XLA_H_ */
