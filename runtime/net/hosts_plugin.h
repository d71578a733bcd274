/* SPDX-License-Identifier: Apache-2.0 */

/* The interface of libronda_hosts.so: gRPC behind a table of C functions. Only the plugin is linked with gRPC, so a
 * process that has another one, or another protobuf or OpenSSL, can load libronda.so.
 *
 * A stream carries messages of bytes in both directions, each in order. A call with one message each way is also a
 * stream. A stream is freed after `closed`. A stream that was never opened is freed by `end`.
 *
 * Functions do not block unless their comment mentions it. Each side frees its own memory: the data of a callback
 * belongs to the plugin and is valid until the callback returns; the data of a function belongs to the caller and must
 * be valid until the function returns. */
#ifndef RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_
#define RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change of the table. */
#define RONDA_HOSTS_PLUGIN_VERSION 3

typedef struct ronda_hosts_server ronda_hosts_server;
typedef struct ronda_hosts_channel ronda_hosts_channel;
typedef struct ronda_hosts_stream ronda_hosts_stream;

typedef struct {
  int64_t max_message_bytes; /* of a message from the other end; -1: no limit */
} ronda_hosts_limits;

/* The events of an open stream, from threads of the plugin: one at a time for reads, and one for writes. */
typedef struct {
  void (*message)(void* owner, const void* data, size_t size);
  /* No message will come any more. */
  void (*reads_end)(void* owner);
  /* The message of the last `write` has been sent, or never will be. The next message can be written. */
  void (*written)(void* owner);
  /* At the server's end: the client has cancelled the call, or is gone. */
  void (*cancelled)(void* owner);
  /* The last event. `code` is an absl::StatusCode: at the client's end the server's result, at the server's end OK. */
  void (*closed)(void* owner, int code, const char* text, size_t size);
} ronda_hosts_events;

typedef struct {
  uint32_t version;             /* RONDA_HOSTS_PLUGIN_VERSION */
  const char* (*library)(void); /* "gRPC 1.51.1" */

  /* A server for the connections that `adopt` gives it. For each stream that a client opens, a thread of the plugin
   * calls `accepted`, with the name that the client has given and the client's address ("ipv4:127.0.0.1:4711"). The
   * caller opens or ends `stream`, now or later. NULL if the server cannot start. */
  ronda_hosts_server* (*serve)(const ronda_hosts_limits* limits,
                               void (*accepted)(void* context, const char* method, const char* client,
                                                ronda_hosts_stream* stream),
                               void* context);
  /* Takes over a connected socket, which does not block. */
  void (*adopt)(ronda_hosts_server* server, int socket);
  /* Accepts no more streams, and cuts off the streams that have not ended after `grace_ms`. Blocks until all have
   * closed; streams that were never opened must be ended first. */
  void (*shut_down)(ronda_hosts_server* server, int64_t grace_ms);

  /* A connection to `target` ("ipv4:127.0.0.1:29500"), which may begin to listen later. */
  ronda_hosts_channel* (*connect)(const char* target, const ronda_hosts_limits* limits);
  /* May be called before its streams have closed. */
  void (*disconnect)(ronda_hosts_channel* channel);
  /* Returns a stream, which begins when it is opened. `waits`: if the server does not listen yet, the stream waits
   * instead of closing at once. The stream is cut off `timeout_ms` from now; -1: never. */
  ronda_hosts_stream* (*call)(ronda_hosts_channel* channel, const char* method, int waits, int64_t timeout_ms);
  /* Cuts off the last stream that `call` returned, if it has not closed. */
  void (*cancel)(ronda_hosts_channel* channel);

  /* Begins to read. Call once; `events` must outlive the stream. */
  void (*open)(ronda_hosts_stream* stream, const ronda_hosts_events* events, void* owner);
  /* REQUIRES: the stream is open, `end` has not been called, and `written` has followed each earlier `write`. */
  void (*write)(ronda_hosts_stream* stream, const void* data, size_t size);
  /* Nothing more will be written. At the server's end, `code` and `text` are the result for the client. Call once.
   * REQUIRES: as `write`, but the stream need not be open. */
  void (*end)(ronda_hosts_stream* stream, int code, const char* text, size_t size);
} ronda_hosts_plugin;

/* The only symbol that the plugin exports. */
#define RONDA_HOSTS_PLUGIN_SYMBOL "ronda_hosts_plugin_table"
const ronda_hosts_plugin* ronda_hosts_plugin_table(void);

#ifdef __cplusplus
}
#endif

#endif /* RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_ */
