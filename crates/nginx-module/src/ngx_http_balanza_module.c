/*
 * Balanza's algorithms in NGINX: "balance NAME [param=value ...];" and "two_choices [param=value ...];" in upstream{}.
 * Here are the directives, and what is done when a configuration or a process begins and ends.
 */
#include "ngx_http_balanza.h"

static char *ngx_http_balanza_balance(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_balanza_two_choices(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_balanza_use(ngx_conf_t *cf, ngx_http_balanza_srv_conf_t *bcf, ngx_str_t *value,
    ngx_uint_t count);
static void *ngx_http_balanza_create_conf(ngx_conf_t *cf);
static ngx_int_t ngx_http_balanza_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_balanza_init_process(ngx_cycle_t *cycle);
static void ngx_http_balanza_exit_process(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_balanza_init_upstream(ngx_conf_t *cf, ngx_http_upstream_srv_conf_t *us);


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

    return ngx_http_balanza_use(cf, conf, &value[1], cf->args->nelts - 1);
}


static char *
ngx_http_balanza_two_choices(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t  *value = cf->args->elts;

    return ngx_http_balanza_use(cf, conf, &value[0], cf->args->nelts);
}


/* The value of "key=", or what stands for it. */
static char *
ngx_http_balanza_use_key(ngx_conf_t *cf, ngx_http_balanza_srv_conf_t *bcf, balanza_text_t *given)
{
    ngx_str_t                         key = ngx_string("$remote_addr");
    ngx_http_compile_complex_value_t  ccv;

    bcf->key_kind = balanza_spec_key(bcf->spec);

    if (bcf->key_kind != BALANZA_KEY_TEXT) {
        return NGX_CONF_OK;
    }

    if (given->data) {
        key.data = (u_char *) given->data;
        key.len = given->len;
    }

    bcf->key = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (bcf->key == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &key;
    ccv.complex_value = bcf->key;

    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_balanza_use(ngx_conf_t *cf, ngx_http_balanza_srv_conf_t *bcf, ngx_str_t *value, ngx_uint_t count)
{
    char                           error[BALANZA_ERROR_MAX];
    ngx_uint_t                     i;
    balanza_text_t                *words, key;
    ngx_pool_cleanup_t            *cln;
    ngx_http_upstream_srv_conf_t  *uscf;

    if (bcf->spec) {
        return "is duplicate: this upstream has an algorithm";
    }

    words = ngx_palloc(cf->temp_pool, count * sizeof(balanza_text_t));
    if (words == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < count; i++) {
        words[i] = ngx_http_balanza_text(&value[i]);
    }

    key.data = NULL;
    key.len = 0;

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_CONF_ERROR;
    }

    bcf->spec = balanza_spec_create(words, count, &key, error, sizeof(error));

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

    return ngx_http_balanza_use_key(cf, bcf, &key);
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

ngx_uint_t
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
