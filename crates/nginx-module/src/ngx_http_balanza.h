/* What the files of the module share. */
#ifndef NGX_HTTP_BALANZA_H
#define NGX_HTTP_BALANZA_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "balanza.h"

/* Since then peers come and go at run time, and count who uses them. */
#if (NGX_HTTP_UPSTREAM_ZONE && nginx_version >= 1027003)
#define BALANZA_RESOLVE  1
#endif

#define BALANZA_ERROR_MAX  512

typedef struct {
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;
} ngx_http_balanza_member_t;

/* A worker's view of an upstream's servers: all of them, the backups last. */
typedef struct {
    /* NULL if there is no server. */
    balanza_worker_t              *worker;
    ngx_http_balanza_member_t     *members;
    ngx_uint_t                     number;
    /* Those that are no backups. */
    ngx_http_upstream_rr_peers_t  *peers;
    /* NGINX's count of changes to the servers, and to the backups. */
    ngx_uint_t                     config[2];
    /* Requests that use it, where the servers change. */
    ngx_uint_t                     refs;
    unsigned                       fixed:1;
    /* The algorithm goes by time. */
    unsigned                       exact:1;
    /* Requests that begin use it. */
    unsigned                       current:1;
} ngx_http_balanza_view_t;

typedef struct {
    balanza_spec_t                *spec;
    int                            key_kind;
    ngx_http_complex_value_t      *key;
    balanza_upstream_t            *upstream;
    /* The servers are the configured ones, and no others come. */
    unsigned                       fixed:1;
    unsigned                       begun:1;
    /* This worker's. */
    ngx_http_balanza_view_t       *view;
} ngx_http_balanza_srv_conf_t;


extern ngx_module_t  ngx_http_balanza_module;

/* ngx_http_balanza_module.c */
ngx_uint_t ngx_http_balanza_workers(ngx_cycle_t *cycle);

/* ngx_http_balanza_view.c */
ngx_uint_t ngx_http_balanza_describe(ngx_http_upstream_rr_peers_t *peers, balanza_server_t *servers,
    ngx_http_balanza_member_t *members);
ngx_http_balanza_view_t *ngx_http_balanza_view(ngx_http_balanza_srv_conf_t *bcf, ngx_http_upstream_rr_peers_t *peers,
    ngx_log_t *log);
void ngx_http_balanza_destroy_view(ngx_http_balanza_view_t *view);
uint64_t ngx_http_balanza_now(int exact);

/* ngx_http_balanza_peer.c */
ngx_int_t ngx_http_balanza_init_peer(ngx_http_request_t *r, ngx_http_upstream_srv_conf_t *us);

static ngx_inline balanza_text_t
ngx_http_balanza_text(ngx_str_t *str)
{
    balanza_text_t  text;

    text.data = str->data;
    text.len = str->len;

    return text;
}

#endif
