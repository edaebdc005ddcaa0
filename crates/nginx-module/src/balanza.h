/*
 * What NGINX's module asks of the library. Implemented in lib.rs; nothing here knows NGINX.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. Functions that fail write a text, ended by a zero, to `error`. All of it is
 * for one thread. Between balanza_worker_create and balanza_worker_destroy nothing allocates, locks or waits, but for a
 * request that tries more than six servers beyond the first 64.
 */
#ifndef BALANZA_H
#define BALANZA_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const unsigned char *data;
    size_t len;
} balanza_text_t;

/* An algorithm with its parameters. */
typedef struct balanza_spec_s balanza_spec_t;
/* An upstream: made by the master before it forks, shared by the workers. */
typedef struct balanza_upstream_s balanza_upstream_t;
/* A worker's view of an upstream. */
typedef struct balanza_worker_s balanza_worker_t;

/* The key that an algorithm goes by. */
enum {
    BALANZA_KEY_NONE = 0,
    /* The client's address: 4 or 16 bytes, or nothing. */
    BALANZA_KEY_ADDRESS = 1,
    /* What the user composes; the client's address in text where he does not. */
    BALANZA_KEY_TEXT = 2
};

/* How a request ended. */
enum {
    BALANZA_SUCCESS = 0,
    /* Counts towards max_fails. */
    BALANZA_FAILURE = 1,
    /* None of these: the client went away, or an answer sent the request elsewhere. */
    BALANZA_NEUTRAL = 2,
    /* An answer that does not count towards max_fails, but against the server where load or latency decide. */
    BALANZA_ERROR_RESPONSE = 3
};

/* No server is eligible. */
#define BALANZA_NOBODY UINT32_MAX
/* No time is known. */
#define BALANZA_NO_TIME UINT64_MAX

typedef struct {
    /* As written in the configuration; consistent hashing goes by it. */
    balanza_text_t name;
    /* What tells it from others of that name, and is the same after a reload. */
    balanza_text_t address;
    uint32_t weight;
    /* 0: none. */
    uint32_t max_conns;
    /* 0: failures do not close it. */
    uint32_t max_fails;
    uint64_t fail_timeout;
    uint8_t backup;
    uint8_t down;
} balanza_server_t;

/* Picks of a request up to which its balanza_tried_t owns no memory. */
#define BALANZA_TRIED_INLINE  6

/* What a request has tried; opaque. */
typedef struct {
    uint64_t words[10];
} balanza_tried_t;

/* Reads an algorithm in words: its name and its parameters (NAME=VALUE, or NAME alone for a switch). The text after
 * `key=`, if there is one, is written to `key`. NULL: see `error`. */
balanza_spec_t *balanza_spec_create(const balanza_text_t *words, size_t count, balanza_text_t *key, char *error,
    size_t error_size);
void balanza_spec_destroy(balanza_spec_t *spec);
/* BALANZA_KEY_... */
int balanza_spec_key(const balanza_spec_t *spec);
/* Whether its choices depend on times; if not, they may be given to the millisecond. */
int balanza_spec_goes_by_time(const balanza_spec_t *spec);

/*
 * Builds an upstream in memory that processes forked afterwards share. `fixed`: the servers are these as long as it lives;
 * otherwise workers say which they are. `before` (or NULL) is the upstream that it replaces, of which it takes over what is
 * known of the servers. NULL: see `error`.
 */
balanza_upstream_t *balanza_upstream_create(const balanza_spec_t *spec, const balanza_server_t *servers, size_t count,
    int fixed, size_t workers_max, const balanza_upstream_t *before, char *error, size_t error_size);
/* To be called once before the processes are forked, with the number of workers. */
void balanza_upstream_ready(balanza_upstream_t *upstream, size_t workers);
/* Gives back this process's part of the memory. No worker of it may be left in this process. */
void balanza_upstream_destroy(balanza_upstream_t *upstream);

/*
 * The view of worker `worker` of `workers`. `servers` is read where the membership is not fixed. NULL: see `error`; with
 * an empty list of servers as well.
 */
balanza_worker_t *balanza_worker_create(balanza_upstream_t *upstream, const balanza_server_t *servers, size_t count,
    size_t worker, size_t workers, uint64_t seed, char *error, size_t error_size);
void balanza_worker_destroy(balanza_worker_t *worker);
/* Gives back what a dead worker of the same number held of this server; returns how many requests. */
uint32_t balanza_worker_recover(balanza_worker_t *worker, uint64_t now, uint32_t member);

void balanza_tried_init(balanza_tried_t *tried);
/* Frees what it owns, which is something only after more picks than BALANZA_TRIED_INLINE. */
void balanza_tried_destroy(balanza_tried_t *tried);

/* Removes a server from `tried`, so that it can be chosen again. */
void balanza_tried_forget(balanza_tried_t *tried, uint32_t member);

/* Chooses a server that is not in `tried`, adds it and takes a slot. Its number in the list of servers, or BALANZA_NOBODY. */
uint32_t balanza_pick(balanza_worker_t *worker, uint64_t now, const unsigned char *key, size_t key_len,
    balanza_tried_t *tried);
/* How a request ended whose answer, with this status, went to the client: BALANZA_SUCCESS or BALANZA_ERROR_RESPONSE. */
int balanza_outcome_of_status(uint32_t status);
/* Gives the slot back. Times since the pick, or BALANZA_NO_TIME. */
void balanza_complete(balanza_worker_t *worker, uint64_t now, uint32_t member, int outcome, uint64_t header_time,
    uint64_t last_byte_time, uint64_t bytes);

#endif
