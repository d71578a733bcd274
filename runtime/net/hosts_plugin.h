/* SPDX-License-Identifier: Apache-2.0 */

/* The interface of libronda_hosts.so, which hides gRPC behind a table of C functions. Only the plugin is linked with
 * gRPC. So a process that contains another version of gRPC, protobuf or OpenSSL can load libronda.so.
 *
 * A stream carries messages of bytes in both directions. Messages in one direction keep their order. A call with one
 * request and one answer is also a stream. The plugin frees a stream after `closed`. If a stream was never opened,
 * `end` frees it.
 *
 * Functions do not block unless their comment mentions it. The data that a callback gets belongs to the plugin, and is
 * valid until the callback returns. The data that a function gets belongs to the caller, and must be valid until the
 * function returns. */
#ifndef RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_
#define RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every change of the table of functions must raise this version. */
#define RONDA_HOSTS_PLUGIN_VERSION 3

typedef struct ronda_hosts_server ronda_hosts_server;
typedef struct ronda_hosts_channel ronda_hosts_channel;
typedef struct ronda_hosts_stream ronda_hosts_stream;

typedef struct {
  int64_t max_message_bytes; /* of a message from the other end; -1: no limit */
} ronda_hosts_limits;

/* Callbacks for the events of an open stream. Threads of the plugin make these calls. At any time there is at most one
 * call for reads and one call for writes. */
typedef struct {
  void (*message)(void* owner, const void* data, size_t size);
  /* Called when no more messages will come. */
  void (*reads_end)(void* owner);
  /* Called when the message of the last `write` has been sent, or can never be sent. The next `write` may follow. */
  void (*written)(void* owner);
  /* Called at the server's end when the client has cancelled the call or is gone. */
  void (*cancelled)(void* owner);
  /* The last event of a stream. `code` is an absl::StatusCode. At the client's end it is the server's result. At the
   * server's end it is OK. */
  void (*closed)(void* owner, int code, const char* text, size_t size);
} ronda_hosts_events;

typedef struct {
  uint32_t version;             /* RONDA_HOSTS_PLUGIN_VERSION */
  const char* (*library)(void); /* "gRPC 1.51.1" */

  /* Returns a server for the connections that `adopt` gives it; NULL if the server cannot start. For each stream that
   * a client opens, a thread of the plugin calls `accepted`, with the name that the client has given and the client's
   * address ("ipv4:127.0.0.1:4711"). The function `accepted` must open or end `stream`, now or later. */
  ronda_hosts_server* (*serve)(const ronda_hosts_limits* limits,
                               void (*accepted)(void* context, const char* method, const char* client,
                                                ronda_hosts_stream* stream),
                               void* context);
  /* Makes the server serve and own a connected, non-blocking socket. */
  void (*adopt)(ronda_hosts_server* server, int socket);
  /* Accepts no more streams, and after `grace_ms` ends the remaining streams by force. Blocks until all streams have
   * closed. Streams that were never opened must be ended first. */
  void (*shut_down)(ronda_hosts_server* server, int64_t grace_ms);

  /* Returns a connection to `target` ("ipv4:127.0.0.1:29500"), which may begin to listen later. If `target` lists
   * several addresses ("ipv4:10.0.0.1:29500,10.0.1.1:29500"), the connection uses the first one that answers. */
  ronda_hosts_channel* (*connect)(const char* target, const ronda_hosts_limits* limits);
  /* Ends the connection. May be called before the streams of the connection have closed. */
  void (*disconnect)(ronda_hosts_channel* channel);
  /* Returns a stream, which begins when it is opened. If `waits` is not 0, the stream waits for a server that does not
   * listen yet, instead of closing at once. The stream is ended by force after `timeout_ms`, unless this is -1. */
  ronda_hosts_stream* (*call)(ronda_hosts_channel* channel, const char* method, int waits, int64_t timeout_ms);
  /* Ends the last stream that `call` returned by force, unless it has closed. */
  void (*cancel)(ronda_hosts_channel* channel);

  /* Begins to read. Must be called at most once. `events` must outlive the stream. */
  void (*open)(ronda_hosts_stream* stream, const ronda_hosts_events* events, void* owner);
  /* Sends a message. REQUIRES: the stream is open, `end` has not been called, and `written` has come for each earlier
   * `write`. */
  void (*write)(ronda_hosts_stream* stream, const void* data, size_t size);
  /* Announces that nothing more will be written. At the server's end, `code` and `text` are the result for the client.
   * Must be called once. REQUIRES: as `write`, but the stream need not be open. */
  void (*end)(ronda_hosts_stream* stream, int code, const char* text, size_t size);
} ronda_hosts_plugin;

/* The only symbol that the plugin exports. */
#define RONDA_HOSTS_PLUGIN_SYMBOL "ronda_hosts_plugin_table"
const ronda_hosts_plugin* ronda_hosts_plugin_table(void);

#ifdef __cplusplus
}
#endif

#endif /* RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_ */
