/*
 * A request: which peer it gets, and what is noted when it is over.
 *
 * The peers stay NGINX's: made by its round robin, in a zone if there is one, with their counters kept as its own balancers
 * keep them, so that keepalive, zone, resolve and whoever else reads them find what they expect. The library keeps its own
 * books of the same events in memory that all workers share, and decides by them; a peer that somebody has marked down in
 * NGINX's list is refused here and the library asked again.
 */
#include "ngx_http_balanza.h"

/* A request. It lives in the request's first page, so it is small: another page costs more than a choice. */
typedef struct {
    /* NGINX's functions for sessions and for its counters read this part, so it comes first. */
    ngx_http_upstream_rr_peer_data_t   rrp;

    ngx_http_request_t                *request;
    ngx_http_balanza_view_t           *view;
    ngx_str_t                          key;
    balanza_tried_t                    tried;
    uint64_t                           picked_at;
    uint32_t                           member;
    /* How many picks there were. */
    uint32_t                           picks;
} ngx_http_balanza_peer_data_t;


static ngx_int_t ngx_http_balanza_get_peer(ngx_peer_connection_t *pc, void *data);
static void ngx_http_balanza_free_peer(ngx_peer_connection_t *pc, void *data, ngx_uint_t state);


/* The end of a request to servers that may change. */
static void
ngx_http_balanza_end(void *data)
{
    ngx_http_balanza_peer_data_t  *bp = data;

    if (--bp->view->refs == 0 && !bp->view->current) {
        ngx_http_balanza_destroy_view(bp->view);
    }
}


/* The end of a request that tried many servers. */
static void
ngx_http_balanza_end_tried(void *data)
{
    balanza_tried_destroy(data);
}


static ngx_int_t
ngx_http_balanza_at_end(ngx_http_request_t *r, ngx_pool_cleanup_pt handler, void *data)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = handler;
    cln->data = data;

    return NGX_OK;
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


ngx_int_t
ngx_http_balanza_init_peer(ngx_http_request_t *r, ngx_http_upstream_srv_conf_t *us)
{
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

    view = ngx_http_balanza_view(bcf, bp->rrp.peers, r->connection->log);
    if (view == NULL) {
        return NGX_ERROR;
    }

    bp->request = r;
    bp->view = view;
    bp->member = BALANZA_NOBODY;
    bp->picks = 0;
    balanza_tried_init(&bp->tried);

    if (!bcf->fixed) {
        if (ngx_http_balanza_at_end(r, ngx_http_balanza_end, bp) != NGX_OK) {
            return NGX_ERROR;
        }

        view->refs++;
    }

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
    if (!bp->view->fixed && peers->config && *peers->config != bp->view->config[peers == bp->view->peers ? 0 : 1]) {
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
        if (bp->picks++ == BALANZA_TRIED_INLINE
            && ngx_http_balanza_at_end(bp->request, ngx_http_balanza_end_tried, &bp->tried) != NGX_OK)
        {
            return NGX_ERROR;
        }

        bp->picked_at = ngx_http_balanza_now(bp->view->exact);

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


/*
 * Whether the server had closed a kept connection before it read the request. That is no failure, and NGINX gives the try back;
 * so the server may be tried again. A response that is late or has begun is a failure of the server.
 */
static ngx_int_t
ngx_http_balanza_was_closed(ngx_peer_connection_t *pc, ngx_uint_t state, uint64_t bytes)
{
    ngx_connection_t  *c = pc->connection;

    return (state & NGX_PEER_FAILED) && pc->cached && c && bytes == 0 && !c->read->timedout && !c->write->timedout;
}


static void
ngx_http_balanza_free_peer(ngx_peer_connection_t *pc, void *data, ngx_uint_t state)
{
    ngx_http_balanza_peer_data_t  *bp = data;

    int                         outcome;
    uint64_t                    now, elapsed, header, bytes;
    ngx_http_upstream_state_t  *us;

    now = ngx_http_balanza_now(bp->view->exact);
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

    if (ngx_http_balanza_was_closed(pc, state, bytes)) {
        balanza_tried_forget(&bp->tried, bp->member);
        state &= ~NGX_PEER_FAILED;
        outcome = BALANZA_NEUTRAL;

    } else if (state & NGX_PEER_FAILED) {
        outcome = BALANZA_FAILURE;

    } else if ((state & NGX_PEER_NEXT) || header == BALANZA_NO_TIME || bp->request->connection->error) {
        outcome = BALANZA_NEUTRAL;

    } else {
        outcome = balanza_outcome_of_status((uint32_t) us->status);
    }

    ngx_http_upstream_free_round_robin_peer(pc, &bp->rrp, state);

    balanza_complete(bp->view->worker, now, bp->member, outcome, header, elapsed, bytes);
}
