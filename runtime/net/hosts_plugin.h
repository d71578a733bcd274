/* SPDX-License-Identifier: Apache-2.0 */

/* The interface of libronda_hosts.so, which hides gRPC behind a table of C functions. Only the plugin links gRPC, so
 * libronda.so can be loaded into a process that contains a different version of gRPC, protobuf or OpenSSL.
 *
 * A stream carries byte messages in both directions, in order. A call with one request and one answer is also a stream.
 * The plugin frees a stream after `closed`, or in `end` if the stream was never opened.
 *
 * Functions do not block unless their comment says so. Data passed to a callback is valid until the callback returns.
 * Data passed to a function must stay valid until the function returns. */
#ifndef RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_
#define RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increment this version with every change to the table of functions. */
#define RONDA_HOSTS_PLUGIN_VERSION 3

typedef struct ronda_hosts_server ronda_hosts_server;
typedef struct ronda_hosts_channel ronda_hosts_channel;
typedef struct ronda_hosts_stream ronda_hosts_stream;

typedef struct {
  int64_t max_message_bytes; /* of a received message; -1: no limit */
} ronda_hosts_limits;

/* Callbacks for the events of an open stream, called on the plugin's threads. At most one read callback and one write
 * callback run at a time. */
typedef struct {
  void (*message)(void* owner, const void* data, size_t size);
  /* Called when no more messages will arrive. */
  void (*reads_end)(void* owner);
  /* Called when the message of the last `write` has been sent or has failed. The next `write` is then allowed. */
  void (*written)(void* owner);
  /* Called at the server's end when the client has cancelled the call or has disconnected. */
  void (*cancelled)(void* owner);
  /* The last event of a stream. `code` is an absl::StatusCode: the server's result at the client's end, and OK at the
   * server's end. */
  void (*closed)(void* owner, int code, const char* text, size_t size);
} ronda_hosts_events;

typedef struct {
  uint32_t version;             /* RONDA_HOSTS_PLUGIN_VERSION */
  const char* (*library)(void); /* "gRPC 1.51.1" */

  /* Returns a server for connections passed to `adopt`, or NULL if it cannot start. For each stream that a client
   * opens, a thread of the plugin calls `accepted` with the client's method name and address ("ipv4:127.0.0.1:4711").
   * The callee must open or end `stream`, either during the call or later. */
  ronda_hosts_server* (*serve)(const ronda_hosts_limits* limits,
                               void (*accepted)(void* context, const char* method, const char* client,
                                                ronda_hosts_stream* stream),
                               void* context);
  /* Makes the server serve and own a connected, non-blocking socket. */
  void (*adopt)(ronda_hosts_server* server, int socket);
  /* Stops accepting streams, and cancels those that are still open after `grace_ms`. Blocks until all streams have
   * closed. Streams that were never opened must be ended first. */
  void (*shut_down)(ronda_hosts_server* server, int64_t grace_ms);

  /* Returns a connection to `target` ("ipv4:127.0.0.1:29500"), which need not be listening yet. If `target` lists
   * several addresses ("ipv4:10.0.0.1:29500,10.0.1.1:29500"), the connection uses the first one that answers. */
  ronda_hosts_channel* (*connect)(const char* target, const ronda_hosts_limits* limits);
  /* Ends the connection. May be called before the streams of the connection have closed. */
  void (*disconnect)(ronda_hosts_channel* channel);
  /* Returns a stream, which starts when it is opened. If the server is not listening yet, the stream waits for it if
   * `waits` is not 0, and otherwise closes at once. The stream is cancelled after `timeout_ms`; -1: never. */
  ronda_hosts_stream* (*call)(ronda_hosts_channel* channel, const char* method, int waits, int64_t timeout_ms);
  /* Cancels the stream that `call` returned last, unless it has closed. */
  void (*cancel)(ronda_hosts_channel* channel);

  /* Opens the stream and starts reading. Must be called at most once. `events` must outlive the stream. */
  void (*open)(ronda_hosts_stream* stream, const ronda_hosts_events* events, void* owner);
  /* Sends a message. REQUIRES: the stream is open, `end` has not been called, and each earlier `write` has been
   * followed by `written`. */
  void (*write)(ronda_hosts_stream* stream, const void* data, size_t size);
  /* Announces that this end will write nothing more. At the server's end, `code` and `text` are the result for the
   * client. Must be called exactly once. REQUIRES: as for `write`, but the stream need not be open. */
  void (*end)(ronda_hosts_stream* stream, int code, const char* text, size_t size);
} ronda_hosts_plugin;

/* The only symbol that the plugin exports. */
#define RONDA_HOSTS_PLUGIN_SYMBOL "ronda_hosts_plugin_table"
const ronda_hosts_plugin* ronda_hosts_plugin_table(void);

#ifdef __cplusplus
}
#endif

#endif /* RONDA_RUNTIME_NET_HOSTS_PLUGIN_H_ */
