/* A worker's view of an upstream's servers, and how NGINX's list becomes it. */
#include "ngx_http_balanza.h"

/*
 * NGINX's own time is that of its last look at the clock, in milliseconds: good enough for algorithms that do not go by
 * time, for which only the pause of a failed server counts, and free. The clock is the same.
 */
uint64_t
ngx_http_balanza_now(int exact)
{
    struct timespec  ts;

    if (!exact) {
        return (uint64_t) ngx_current_msec * 1000000;
    }

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
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
ngx_uint_t
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


void
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
    view->fixed = bcf->fixed;
    view->current = 1;
    view->peers = peers;
    view->exact = balanza_spec_goes_by_time(bcf->spec);
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

    seed = ngx_http_balanza_now(1) ^ ((uint64_t) ngx_pid << 32) ^ (uint64_t) ngx_random();

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
        lost = balanza_worker_recover(view->worker, ngx_http_balanza_now(view->exact), (uint32_t) i);

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
ngx_http_balanza_view_t *
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

            if (bcf->view) {
                bcf->view->current = 0;

                if (bcf->view->refs == 0) {
                    ngx_http_balanza_destroy_view(bcf->view);
                }
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
