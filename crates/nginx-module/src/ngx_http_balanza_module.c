/*
 * Balanza's algorithms in NGINX: "balance NAME [param=value ...];" and "two_choices [param=value ...];" in upstream{}.
 *
 * The peers stay NGINX's: made by its round robin, in a zone if there is one, with their counters kept as its own balancers
 * keep them, so that keepalive, zone, resolve and whoever else reads them find what they expect. The library keeps its own
 * books of the same events in memory that all workers share, and decides by them; a peer that somebody has marked down in
 * NGINX's list is refused here and the library asked again.
 */
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
    /* Requests that use it. */
    ngx_uint_t                     refs;
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

/* A request. */
typedef struct {
    /* NGINX's functions for sessions and for its counters read this part, so it comes first. */
    ngx_http_upstream_rr_peer_data_t   rrp;

    ngx_http_request_t                *request;
    ngx_http_balanza_srv_conf_t       *conf;
    ngx_http_balanza_view_t           *view;
    ngx_str_t                          key;
    balanza_tried_t                    tried;
    uint32_t                           member;
    uint64_t                           picked_at;
} ngx_http_balanza_peer_data_t;


static char *ngx_http_balanza_balance(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_balanza_two_choices(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_balanza_use(ngx_conf_t *cf, ngx_http_balanza_srv_conf_t *bcf, ngx_str_t *name,
    ngx_str_t *parameters, ngx_uint_t count);
static void *ngx_http_balanza_create_conf(ngx_conf_t *cf);
static ngx_int_t ngx_http_balanza_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_balanza_init_process(ngx_cycle_t *cycle);
static void ngx_http_balanza_exit_process(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_balanza_init_upstream(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_balanza_init_peer(ngx_http_request_t *r, ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_balanza_get_peer(ngx_peer_connection_t *pc, void *data);
static void ngx_http_balanza_free_peer(ngx_peer_connection_t *pc, void *data, ngx_uint_t state);


static ngx_command_t  ngx_http_balanza_commands[] = {

    { ngx_string("balance"),
      NGX_HTTP_UPS_CONF|NGX_CONF_1MORE,
      ngx_http_balanza_balance,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("two_choices"),
      NGX_HTTP_UPS_CONF|NGX_CONF_ANY,
      ngx_http_balanza_two_choices,
      NGX_HTTP_SRV_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_balanza_module_ctx = {
    NULL,                                  /* preconfiguration */
    NULL,                                  /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    ngx_http_balanza_create_conf,          /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_balanza_module = {
    NGX_MODULE_V1,
    &ngx_http_balanza_module_ctx,          /* module context */
    ngx_http_balanza_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_balanza_init_module,          /* init module */
    ngx_http_balanza_init_process,         /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_balanza_exit_process,         /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


/* NGINX's own clock goes in milliseconds. */
static uint64_t
ngx_http_balanza_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}


static balanza_text_t
ngx_http_balanza_text(ngx_str_t *str)
{
    balanza_text_t  text;

    text.data = str->data;
    text.len = str->len;

    return text;
}


/* This module's part of an upstream's configuration; NULL for upstreams without a block, and where it is not used. */
static ngx_http_balanza_srv_conf_t *
ngx_http_balanza_conf(ngx_http_upstream_srv_conf_t *us)
{
    ngx_http_balanza_srv_conf_t  *bcf;

    if (us->srv_conf == NULL) {
        return NULL;
    }

    bcf = ngx_http_conf_upstream_srv_conf(us, ngx_http_balanza_module);

    return bcf->upstream ? bcf : NULL;
}


/* The upstreams of a configuration, for loops. */
static ngx_array_t *
ngx_http_balanza_upstreams(ngx_cycle_t *cycle)
{
    ngx_http_upstream_main_conf_t  *umcf;

    if (cycle == NULL || cycle->conf_ctx == NULL) {
        return NULL;
    }

    umcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_upstream_module);

    return umcf ? &umcf->upstreams : NULL;
}


/*
 * Configuration.
 */

static void
ngx_http_balanza_destroy_spec(void *data)
{
    balanza_spec_destroy(data);
}


static void
ngx_http_balanza_destroy_upstream(void *data)
{
    balanza_upstream_destroy(data);
}


static void *
ngx_http_balanza_create_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_balanza_srv_conf_t));
}


static char *
ngx_http_balanza_balance(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t  *value = cf->args->elts;

    return ngx_http_balanza_use(cf, conf, &value[1], &value[2], cf->args->nelts - 2);
}


static char *
ngx_http_balanza_two_choices(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t  *value = cf->args->elts;

    return ngx_http_balanza_use(cf, conf, &value[0], &value[1], cf->args->nelts - 1);
}


/* The value of "key=", or what stands for it. */
static char *
ngx_http_balanza_use_key(ngx_conf_t *cf, ngx_http_balanza_srv_conf_t *bcf, ngx_str_t *name, ngx_str_t *key)
{
    ngx_str_t                         client = ngx_string("$remote_addr");
    ngx_http_compile_complex_value_t  ccv;

    bcf->key_kind = balanza_spec_key(bcf->spec);

    if (bcf->key_kind == BALANZA_KEY_NONE || bcf->key_kind == BALANZA_KEY_ADDRESS) {
        if (key) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" takes no key", name);
            return NGX_CONF_ERROR;
        }

        return NGX_CONF_OK;
    }

    if (key == NULL && bcf->key_kind == BALANZA_KEY_GIVEN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" needs a key, for instance key=$uri", name);
        return NGX_CONF_ERROR;
    }

    if (key && key->len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "the key is empty");
        return NGX_CONF_ERROR;
    }

    bcf->key = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (bcf->key == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = key ? key : &client;
    ccv.complex_value = bcf->key;

    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_balanza_use(ngx_conf_t *cf, ngx_http_balanza_srv_conf_t *bcf, ngx_str_t *name, ngx_str_t *parameters,
    ngx_uint_t count)
{
    char                           error[BALANZA_ERROR_MAX];
    ngx_str_t                      key, *given;
    ngx_uint_t                     i, n;
    balanza_text_t                *texts;
    ngx_pool_cleanup_t            *cln;
    ngx_http_upstream_srv_conf_t  *uscf;

    if (bcf->spec) {
        return "is duplicate: this upstream has an algorithm";
    }

    texts = ngx_palloc(cf->temp_pool, (count + 1) * sizeof(balanza_text_t));
    if (texts == NULL) {
        return NGX_CONF_ERROR;
    }

    given = NULL;

    for (i = 0, n = 0; i < count; i++) {
        if (parameters[i].len >= 4 && ngx_strncmp(parameters[i].data, "key=", 4) == 0) {
            if (given) {
                return "has two keys";
            }

            key.data = parameters[i].data + 4;
            key.len = parameters[i].len - 4;
            given = &key;
            continue;
        }

        texts[n++] = ngx_http_balanza_text(&parameters[i]);
    }

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    bcf->spec = balanza_spec_create(ngx_http_balanza_text(name), texts, n, error, sizeof(error));

    if (bcf->spec == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s", error);
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_http_balanza_destroy_spec;
    cln->data = bcf->spec;

    uscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);

    if (uscf->peer.init_upstream) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "load balancing method redefined");
    }

    uscf->peer.init_upstream = ngx_http_balanza_init_upstream;

    uscf->flags = NGX_HTTP_UPSTREAM_CREATE
                  |NGX_HTTP_UPSTREAM_WEIGHT
                  |NGX_HTTP_UPSTREAM_MAX_CONNS
                  |NGX_HTTP_UPSTREAM_MAX_FAILS
                  |NGX_HTTP_UPSTREAM_FAIL_TIMEOUT
                  |NGX_HTTP_UPSTREAM_DOWN
                  |NGX_HTTP_UPSTREAM_BACKUP;

#ifdef NGX_HTTP_UPSTREAM_MODIFY
    uscf->flags |= NGX_HTTP_UPSTREAM_MODIFY;
#endif

    return ngx_http_balanza_use_key(cf, bcf, name, given);
}


/* How many servers a list has; NGINX's own number counts the addresses of the configuration. */
static ngx_uint_t
ngx_http_balanza_count(ngx_http_upstream_rr_peers_t *peers)
{
    ngx_uint_t                    n;
    ngx_http_upstream_rr_peer_t  *peer;

    n = 0;

    for (peer = peers ? peers->peer : NULL; peer; peer = peer->next) {
        n++;
    }

    return n;
}


/* Describes the servers of both lists; fills `members` (or NULL) alike. Returns how many there are. */
static ngx_uint_t
ngx_http_balanza_describe(ngx_http_upstream_rr_peers_t *peers, balanza_server_t *servers,
    ngx_http_balanza_member_t *members)
{
    ngx_uint_t                     n, backup;
    ngx_http_upstream_rr_peer_t   *peer;

    n = 0;

    for (backup = 0; peers && backup < 2; peers = peers->next, backup++) {

        for (peer = peers->peer; peer; peer = peer->next, n++) {

            if (servers) {
                servers[n].name = ngx_http_balanza_text(peer->server.len ? &peer->server : &peer->name);
                servers[n].address = ngx_http_balanza_text(&peer->name);
                servers[n].weight = (uint32_t) ngx_max(peer->weight, 1);
                servers[n].max_conns = (uint32_t) peer->max_conns;
                servers[n].max_fails = (uint32_t) peer->max_fails;
                servers[n].fail_timeout = (uint64_t) peer->fail_timeout * 1000000000;
                servers[n].backup = (uint8_t) backup;
                servers[n].down = peer->down ? 1 : 0;
            }

            if (members) {
                members[n].peer = peer;
                members[n].peers = peers;
            }
        }
    }

    return n;
}


/* The upstream of the same name in the configuration that is being replaced. */
static balanza_upstream_t *
ngx_http_balanza_before(ngx_cycle_t *cycle, ngx_http_upstream_srv_conf_t *us)
{
    ngx_uint_t                      i;
    ngx_array_t                    *upstreams;
    ngx_cycle_t                    *old;
    ngx_http_balanza_srv_conf_t    *bcf;
    ngx_http_upstream_srv_conf_t  **uscfp;

    old = cycle->old_cycle;
    upstreams = ngx_http_balanza_upstreams(old);

    if (upstreams == NULL) {
        return NULL;
    }

    /* The module may be new there, or another copy of it. */

    for (i = 0; old->modules[i] != &ngx_http_balanza_module; i++) {
        if (old->modules[i] == NULL) {
            return NULL;
        }
    }

    uscfp = upstreams->elts;

    for (i = 0; i < upstreams->nelts; i++) {
        bcf = ngx_http_balanza_conf(uscfp[i]);

        if (bcf
            && uscfp[i]->port == us->port
            && uscfp[i]->host.len == us->host.len
            && ngx_strncasecmp(uscfp[i]->host.data, us->host.data, us->host.len) == 0)
        {
            return bcf->upstream;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_balanza_init_upstream(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us)
{
    char                          error[BALANZA_ERROR_MAX];
    ngx_uint_t                    n;
    balanza_server_t             *servers;
    ngx_pool_cleanup_t           *cln;
    ngx_http_balanza_srv_conf_t  *bcf;
    ngx_http_upstream_rr_peers_t *peers;

    if (ngx_http_upstream_init_round_robin(cf, us) != NGX_OK) {
        return NGX_ERROR;
    }

    bcf = ngx_http_conf_upstream_srv_conf(us, ngx_http_balanza_module);
    peers = us->peer.data;

    bcf->fixed = 1;

#if (BALANZA_RESOLVE)
    if (peers->resolve || (peers->next && peers->next->resolve)) {
        bcf->fixed = 0;
    }
#endif

    n = ngx_http_balanza_describe(peers, NULL, NULL);

    servers = ngx_pcalloc(cf->temp_pool, (n + 1) * sizeof(balanza_server_t));
    if (servers == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_http_balanza_describe(peers, servers, NULL);

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    bcf->upstream = balanza_upstream_create(bcf->spec, servers, n, bcf->fixed, NGX_MAX_PROCESSES,
                                            ngx_http_balanza_before(cf->cycle, us), error, sizeof(error));

    if (bcf->upstream == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "%s in upstream \"%V\" in %s:%ui",
                      error, &us->host, us->file_name, us->line);
        return NGX_ERROR;
    }

    cln->handler = ngx_http_balanza_destroy_upstream;
    cln->data = bcf->upstream;

    us->peer.init = ngx_http_balanza_init_peer;

    return NGX_OK;
}


/*
 * Processes.
 */

static ngx_uint_t
ngx_http_balanza_workers(ngx_cycle_t *cycle)
{
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    return ccf->master && ccf->worker_processes > 0 ? (ngx_uint_t) ccf->worker_processes : 1;
}


static ngx_int_t
ngx_http_balanza_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i;
    ngx_array_t                    *upstreams;
    ngx_http_balanza_srv_conf_t    *bcf;
    ngx_http_upstream_srv_conf_t  **uscfp;

    upstreams = ngx_http_balanza_upstreams(cycle);

    if (upstreams == NULL) {
        return NGX_OK;
    }

    uscfp = upstreams->elts;

    for (i = 0; i < upstreams->nelts; i++) {
        bcf = ngx_http_balanza_conf(uscfp[i]);

        if (bcf) {
            balanza_upstream_ready(bcf->upstream, ngx_http_balanza_workers(cycle));
        }
    }

    return NGX_OK;
}


static void
ngx_http_balanza_destroy_view(ngx_http_balanza_view_t *view)
{
    if (view->worker) {
        balanza_worker_destroy(view->worker);
    }

    ngx_free(view);
}


/* NGINX's counts of changes. Called with the lists locked. */
static void
ngx_http_balanza_read_config(ngx_http_upstream_rr_peers_t *peers, ngx_uint_t *config)
{
    config[0] = 0;
    config[1] = 0;

#if (BALANZA_RESOLVE)
    if (peers->config) {
        config[0] = *peers->config;
    }

    if (peers->next && peers->next->config) {
        config[1] = *peers->next->config;
    }
#endif
}


/* The servers as they are now. Called with the lists locked where they change. */
static ngx_http_balanza_view_t *
ngx_http_balanza_create_view(ngx_http_balanza_srv_conf_t *bcf, ngx_http_upstream_rr_peers_t *peers, ngx_log_t *log)
{
    char                        error[BALANZA_ERROR_MAX];
    uint64_t                    seed;
    ngx_uint_t                  n;
    balanza_server_t           *servers;
    ngx_http_balanza_view_t    *view;

    n = ngx_http_balanza_count(peers) + ngx_http_balanza_count(peers->next);

    view = ngx_calloc(sizeof(ngx_http_balanza_view_t) + n * sizeof(ngx_http_balanza_member_t), log);
    if (view == NULL) {
        return NULL;
    }

    view->members = (ngx_http_balanza_member_t *) (view + 1);
    view->number = n;
    view->peers = peers;
    ngx_http_balanza_read_config(peers, view->config);

    servers = NULL;

    if (!bcf->fixed) {
        servers = ngx_calloc((n + 1) * sizeof(balanza_server_t), log);
        if (servers == NULL) {
            ngx_free(view);
            return NULL;
        }
    }

    (void) ngx_http_balanza_describe(peers, servers, view->members);

    seed = ngx_http_balanza_now() ^ ((uint64_t) ngx_pid << 32) ^ (uint64_t) ngx_random();

    view->worker = balanza_worker_create(bcf->upstream, servers, servers ? n : 0, ngx_worker,
                                         ngx_http_balanza_workers((ngx_cycle_t *) ngx_cycle), seed,
                                         error, sizeof(error));

    if (view->worker == NULL && bcf->fixed) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "balanza: %s", error);
    }

    if (servers) {
        ngx_free(servers);
    }

    return view;
}


/* Gives back what a worker that died held. */
static void
ngx_http_balanza_recover(ngx_http_balanza_view_t *view, ngx_log_t *log)
{
    uint32_t                       lost;
    ngx_uint_t                     i;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    if (view->worker == NULL) {
        return;
    }

    for (i = 0; i < view->number; i++) {
        lost = balanza_worker_recover(view->worker, ngx_http_balanza_now(), (uint32_t) i);

        if (lost == 0) {
            continue;
        }

        peer = view->members[i].peer;
        peers = view->members[i].peers;

        ngx_log_error(NGX_LOG_NOTICE, log, 0, "%uD requests to %V ended with a worker", lost, &peer->name);

#if (NGX_HTTP_UPSTREAM_ZONE)
        if (peers->shpool) {
            ngx_http_upstream_rr_peer_lock(peers, peer);
            peer->conns -= ngx_min(peer->conns, lost);
            ngx_http_upstream_rr_peer_unlock(peers, peer);
        }
#else
        (void) peers;
#endif
    }
}


/* This worker's view, made anew when the servers have changed; NULL if there is no memory. */
static ngx_http_balanza_view_t *
ngx_http_balanza_view(ngx_http_balanza_srv_conf_t *bcf, ngx_http_upstream_rr_peers_t *peers, ngx_log_t *log)
{
    ngx_uint_t                config[2];
    ngx_http_balanza_view_t  *view;

    if (bcf->fixed && bcf->view) {
        return bcf->view;
    }

    ngx_http_upstream_rr_peers_rlock(peers);

    if (peers->next) {
        ngx_http_upstream_rr_peers_rlock(peers->next);
    }

    ngx_http_balanza_read_config(peers, config);
    view = bcf->view;

    if (view == NULL || view->config[0] != config[0] || view->config[1] != config[1]) {
        view = ngx_http_balanza_create_view(bcf, peers, log);

        if (view) {
            if (!bcf->begun) {
                ngx_http_balanza_recover(view, log);
                bcf->begun = 1;
            }

            if (bcf->view && bcf->view->refs == 0) {
                ngx_http_balanza_destroy_view(bcf->view);
            }

            bcf->view = view;
        }
    }

    if (peers->next) {
        ngx_http_upstream_rr_peers_unlock(peers->next);
    }

    ngx_http_upstream_rr_peers_unlock(peers);

    return view;
}


static ngx_int_t
ngx_http_balanza_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i;
    ngx_array_t                    *upstreams;
    ngx_http_balanza_srv_conf_t    *bcf;
    ngx_http_upstream_srv_conf_t  **uscfp;

    upstreams = ngx_http_balanza_upstreams(cycle);

    if (upstreams == NULL || ngx_process == NGX_PROCESS_HELPER) {
        return NGX_OK;
    }

    uscfp = upstreams->elts;

    for (i = 0; i < upstreams->nelts; i++) {
        bcf = ngx_http_balanza_conf(uscfp[i]);

        if (bcf && ngx_http_balanza_view(bcf, uscfp[i]->peer.data, cycle->log) == NULL) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_http_balanza_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i;
    ngx_array_t                    *upstreams;
    ngx_http_balanza_srv_conf_t    *bcf;
    ngx_http_upstream_srv_conf_t  **uscfp;

    upstreams = ngx_http_balanza_upstreams(cycle);

    if (upstreams == NULL) {
        return;
    }

    uscfp = upstreams->elts;

    for (i = 0; i < upstreams->nelts; i++) {
        bcf = ngx_http_balanza_conf(uscfp[i]);

        /* Requests that the worker does not finish keep theirs. */

        if (bcf && bcf->view && bcf->view->refs == 0) {
            ngx_http_balanza_destroy_view(bcf->view);
            bcf->view = NULL;
        }
    }
}


/*
 * Requests.
 */

static void
ngx_http_balanza_end(void *data)
{
    ngx_http_balanza_peer_data_t  *bp = data;

    balanza_tried_destroy(&bp->tried);

    if (--bp->view->refs == 0 && bp->view != bp->conf->view) {
        ngx_http_balanza_destroy_view(bp->view);
    }
}


static ngx_int_t
ngx_http_balanza_key(ngx_http_request_t *r, ngx_http_balanza_srv_conf_t *bcf, ngx_str_t *key)
{
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    ngx_str_null(key);

    if (bcf->key) {
        return ngx_http_complex_value(r, bcf->key, key);
    }

    if (bcf->key_kind != BALANZA_KEY_ADDRESS) {
        return NGX_OK;
    }

    switch (r->connection->sockaddr->sa_family) {

    case AF_INET:
        sin = (struct sockaddr_in *) r->connection->sockaddr;
        key->data = (u_char *) &sin->sin_addr.s_addr;
        key->len = 4;
        break;

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) r->connection->sockaddr;
        key->data = (u_char *) &sin6->sin6_addr.s6_addr;
        key->len = 16;
        break;
#endif
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_balanza_init_peer(ngx_http_request_t *r, ngx_http_upstream_srv_conf_t *us)
{
    ngx_pool_cleanup_t            *cln;
    ngx_http_balanza_view_t       *view;
    ngx_http_balanza_srv_conf_t   *bcf;
    ngx_http_balanza_peer_data_t  *bp;

    bcf = ngx_http_conf_upstream_srv_conf(us, ngx_http_balanza_module);

    bp = ngx_palloc(r->pool, sizeof(ngx_http_balanza_peer_data_t));
    if (bp == NULL) {
        return NGX_ERROR;
    }

    r->upstream->peer.data = &bp->rrp;

    if (ngx_http_upstream_init_round_robin_peer(r, us) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_balanza_key(r, bcf, &bp->key) != NGX_OK) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    view = ngx_http_balanza_view(bcf, bp->rrp.peers, r->connection->log);
    if (view == NULL) {
        return NGX_ERROR;
    }

    bp->request = r;
    bp->conf = bcf;
    bp->view = view;
    bp->member = BALANZA_NOBODY;
    balanza_tried_init(&bp->tried);
    view->refs++;

    cln->handler = ngx_http_balanza_end;
    cln->data = bp;

    r->upstream->peer.get = ngx_http_balanza_get_peer;
    r->upstream->peer.free = ngx_http_balanza_free_peer;

    return NGX_OK;
}


/* Whether NGINX's peer may be used; if so, it is now. */
static ngx_int_t
ngx_http_balanza_take(ngx_http_balanza_peer_data_t *bp, ngx_http_balanza_member_t *member)
{
    time_t                         now;
    ngx_int_t                      rc;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    peers = member->peers;

    ngx_http_upstream_rr_peers_rlock(peers);

#if (BALANZA_RESOLVE)
    if (!bp->conf->fixed && peers->config && *peers->config != bp->view->config[peers == bp->view->peers ? 0 : 1]) {
        /* The servers have changed since the request began; the peer may be gone. */
        ngx_http_upstream_rr_peers_unlock(peers);
        return NGX_ABORT;
    }
#endif

    peer = member->peer;
    rc = NGX_BUSY;

    ngx_http_upstream_rr_peer_lock(peers, peer);

    if (!peer->down) {
        now = ngx_time();

        if (now - peer->checked > peer->fail_timeout) {
            peer->checked = now;
        }

        peer->conns++;

#if (BALANZA_RESOLVE)
        ngx_http_upstream_rr_peer_ref(peers, peer);
#endif

        rc = NGX_OK;
    }

    ngx_http_upstream_rr_peer_unlock(peers, peer);
    ngx_http_upstream_rr_peers_unlock(peers);

    return rc;
}


static ngx_int_t
ngx_http_balanza_get_peer(ngx_peer_connection_t *pc, void *data)
{
    ngx_http_balanza_peer_data_t  *bp = data;

    uint32_t                      m;
    ngx_int_t                     rc;
    balanza_worker_t             *worker;
    ngx_http_balanza_member_t    *member;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, pc->log, 0, "get balanza peer, try: %ui", pc->tries);

    pc->cached = 0;
    pc->connection = NULL;

    worker = bp->view->worker;

    while (worker) {
        bp->picked_at = ngx_http_balanza_now();

        m = balanza_pick(worker, bp->picked_at, bp->key.data, bp->key.len, &bp->tried);

        if (m == BALANZA_NOBODY) {
            break;
        }

        member = &bp->view->members[m];
        rc = ngx_http_balanza_take(bp, member);

        if (rc == NGX_OK) {
            bp->member = m;
            bp->rrp.peers = member->peers;
            bp->rrp.current = member->peer;

            pc->sockaddr = member->peer->sockaddr;
            pc->socklen = member->peer->socklen;
            pc->name = &member->peer->name;

            return NGX_OK;
        }

        balanza_complete(worker, bp->picked_at, m, BALANZA_NEUTRAL, BALANZA_NO_TIME, BALANZA_NO_TIME, 0);

        if (rc == NGX_ABORT) {
            break;
        }
    }

    pc->name = bp->rrp.peers->name;

    return NGX_BUSY;
}


static void
ngx_http_balanza_free_peer(ngx_peer_connection_t *pc, void *data, ngx_uint_t state)
{
    ngx_http_balanza_peer_data_t  *bp = data;

    int                         outcome;
    uint64_t                    now, elapsed, header, bytes;
    ngx_http_upstream_state_t  *us;

    now = ngx_http_balanza_now();
    elapsed = now - bp->picked_at;
    header = BALANZA_NO_TIME;
    bytes = 0;

    us = bp->request->upstream ? bp->request->upstream->state : NULL;

    if (us) {
        bytes = (uint64_t) us->bytes_received;

        if (us->header_time != (ngx_msec_t) -1) {
            /* A millisecond's middle, since NGINX cuts the rest. */
            header = ngx_min(elapsed, (uint64_t) us->header_time * 1000000 + 500000);
        }
    }

    if (state & NGX_PEER_FAILED) {
        outcome = BALANZA_FAILURE;

    } else if ((state & NGX_PEER_NEXT) || header == BALANZA_NO_TIME || bp->request->connection->error) {
        outcome = BALANZA_NEUTRAL;

    } else {
        outcome = BALANZA_SUCCESS;
    }

    ngx_http_upstream_free_round_robin_peer(pc, &bp->rrp, state);

    balanza_complete(bp->view->worker, now, bp->member, outcome, header, elapsed, bytes);
}
