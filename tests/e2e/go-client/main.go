// Changes servers and reads statistics by the client library of NGINX Plus, as its own tests do.
//
// Usage: client URL, where URL is that of the API, such as http://127.0.0.1:8080/api. tests/e2e/test_api.py starts a
// balancer with nginx.conf and runs it.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"

	"github.com/nginx/nginx-plus-go-client/v3/client"
)

var ctx = context.Background()

func check(ok bool, format string, arguments ...any) {
	if !ok {
		fmt.Fprintf(os.Stderr, format+"\n", arguments...)
		os.Exit(1)
	}
}

func must(err error, doing string) {
	check(err == nil, "%s: %v", doing, err)
}

func pointer[T any](value T) *T { return &value }

func httpServers(c *client.NginxClient) {
	must(c.CheckIfUpstreamExists(ctx, "test"), "look for an upstream")
	check(c.CheckIfUpstreamExists(ctx, "none") != nil, "an upstream that does not exist was found")
	server := client.UpstreamServer{
		Server: "127.0.0.1:8001", MaxConns: pointer(64), MaxFails: pointer(21), FailTimeout: "21s", SlowStart: "12s",
		Route: "test", Backup: pointer(true), Down: pointer(true), Weight: pointer(2),
	}
	must(c.AddHTTPServer(ctx, "test", server), "add a server")
	check(c.AddHTTPServer(ctx, "test", server) != nil, "a server was added twice")
	found, err := c.GetHTTPServers(ctx, "test")
	must(err, "read servers")
	check(len(found) == 1, "%d servers", len(found))
	server.ID = found[0].ID
	check(reflect.DeepEqual(found[0], server), "found %+v, added %+v", found[0], server)
	server.MaxConns, server.Down = pointer(3), pointer(false)
	must(c.UpdateHTTPServer(ctx, "test", server), "change a server")
	found, err = c.GetHTTPServers(ctx, "test")
	must(err, "read servers")
	check(*found[0].MaxConns == 3 && !*found[0].Down, "found %+v", found[0])
	must(c.DeleteHTTPServer(ctx, "test", server.Server), "remove a server")
	check(c.DeleteHTTPServer(ctx, "test", server.Server) != nil, "a server was removed twice")

	plain := client.UpstreamServer{Server: "127.0.0.1:8002"}
	must(c.AddHTTPServer(ctx, "test", plain), "add a server with defaults")
	found, err = c.GetHTTPServers(ctx, "test")
	must(err, "read servers")
	expected := client.UpstreamServer{
		ID: found[0].ID, Server: "127.0.0.1:8002", MaxConns: pointer(0), MaxFails: pointer(1), FailTimeout: "10s",
		SlowStart: "0s", Backup: pointer(false), Down: pointer(false), Weight: pointer(1),
	}
	check(reflect.DeepEqual(found[0], expected), "found %+v, expected %+v", found[0], expected)

	list := []client.UpstreamServer{{Server: "127.0.0.1:8003"}, {Server: "127.0.0.1:8004"}, {Server: "127.0.0.1:8002", Weight: pointer(5)}}
	added, deleted, updated, err := c.UpdateHTTPServers(ctx, "test", list)
	must(err, "replace servers")
	check(len(added) == 2 && len(deleted) == 0 && len(updated) == 1, "%v %v %v", added, deleted, updated)
	_, deleted, _, err = c.UpdateHTTPServers(ctx, "test", []client.UpstreamServer{})
	must(err, "remove all servers")
	check(len(deleted) == 3, "%v", deleted)
	drained, err := c.GetHTTPServers(ctx, "test-drain")
	must(err, "read servers")
	check(len(drained) == 1 && drained[0].Drain, "found %+v", drained)
}

func streamServers(c *client.NginxClient) {
	must(c.CheckIfStreamUpstreamExists(ctx, "stream_test"), "look for an upstream")
	server := client.StreamUpstreamServer{
		Server: "127.0.0.1:2000", MaxConns: pointer(64), MaxFails: pointer(21), FailTimeout: "21s", SlowStart: "12s",
		Backup: pointer(true), Down: pointer(true), Weight: pointer(2),
	}
	must(c.AddStreamServer(ctx, "stream_test", server), "add a server")
	check(c.AddStreamServer(ctx, "stream_test", server) != nil, "a server was added twice")
	found, err := c.GetStreamServers(ctx, "stream_test")
	must(err, "read servers")
	check(len(found) == 1, "%d servers", len(found))
	server.ID = found[0].ID
	check(reflect.DeepEqual(found[0], server), "found %+v, added %+v", found[0], server)
	server.MaxConns = pointer(3)
	must(c.UpdateStreamServer(ctx, "stream_test", server), "change a server")
	added, deleted, _, err := c.UpdateStreamServers(ctx, "stream_test", []client.StreamUpstreamServer{{Server: "127.0.0.1:2001"}})
	must(err, "replace servers")
	check(len(added) == 1 && len(deleted) == 1, "%v %v", added, deleted)
	must(c.DeleteStreamServer(ctx, "stream_test", "127.0.0.1:2001"), "remove a server")
}

func statistics(c *client.NginxClient) {
	must(c.AddHTTPServer(ctx, "test", client.UpstreamServer{Server: "127.0.0.1:8080"}), "add a server")
	must(c.AddStreamServer(ctx, "stream_test", client.StreamUpstreamServer{Server: "127.0.0.1:8080"}), "add a server")
	stats, err := c.GetStats(ctx)
	must(err, "read statistics")
	check(stats.NginxInfo.Version != "" && stats.NginxInfo.Generation == 1, "%+v", stats.NginxInfo)
	check(stats.Connections.Accepted >= 1 && stats.HTTPRequests.Total >= 1, "%+v %+v", stats.Connections, stats.HTTPRequests)
	zone, ok := stats.ServerZones["test"]
	check(ok && zone.Requests >= 1 && zone.Responses.Codes.HTTPOk >= 1, "%+v", stats.ServerZones)
	location, ok := stats.LocationZones["location_test"]
	check(ok && location.Requests >= 1 && location.Responses.Responses2xx >= 1, "%+v", stats.LocationZones)
	peers := stats.Upstreams["test"].Peers
	check(len(peers) == 1 && peers[0].State == "up" && peers[0].Server == "127.0.0.1:8080", "%+v", peers)
	check(stats.Upstreams["test-drain"].Peers[0].State == "draining", "%+v", stats.Upstreams["test-drain"])
	check(stats.HTTPLimitRequests["one"].Passed >= 1, "%+v", stats.HTTPLimitRequests)
	check(stats.HTTPLimitConnections["addr"].Passed >= 1, "%+v", stats.HTTPLimitConnections)
	check(len(stats.Workers) == 2, "%+v", stats.Workers)
	_, ok = stats.StreamServerZones["stream_test"]
	check(ok, "%+v", stats.StreamServerZones)
	check(len(stats.StreamUpstreams["stream_test"].Peers) == 1, "%+v", stats.StreamUpstreams)
	_, ok = stats.StreamLimitConnections["addr_stream"]
	check(ok, "%+v", stats.StreamLimitConnections)
	check(stats.StreamZoneSync == nil, "%+v", stats.StreamZoneSync)
	endpoints, err := c.GetAvailableEndpoints(ctx)
	must(err, "read endpoints")
	check(reflect.DeepEqual(endpoints[len(endpoints)-1], "workers"), "%v", endpoints)
	version, err := c.GetMaxAPIVersion(ctx)
	must(err, "read versions")
	check(version == 9, "version %d", version)
}

func pairs(c *client.NginxClient) {
	must(c.AddKeyValPair(ctx, "zone_one", "key1", "val1"), "add a pair")
	check(c.AddKeyValPair(ctx, "zone_one", "key1", "val1") != nil, "a pair was added twice")
	must(c.ModifyKeyValPair(ctx, "zone_one", "key1", "val2"), "change a pair")
	found, err := c.GetKeyValPairs(ctx, "zone_one")
	must(err, "read pairs")
	check(reflect.DeepEqual(found, client.KeyValPairs{"key1": "val2"}), "found %v", found)
	all, err := c.GetAllKeyValPairs(ctx)
	must(err, "read zones")
	check(reflect.DeepEqual(all["zone_one"], found), "found %v", all)
	must(c.DeleteKeyValuePair(ctx, "zone_one", "key1"), "remove a pair")
	must(c.AddKeyValPair(ctx, "zone_one", "key2", "val2"), "add a pair")
	must(c.DeleteKeyValPairs(ctx, "zone_one"), "remove all pairs")
	found, err = c.GetKeyValPairs(ctx, "zone_one")
	must(err, "read pairs")
	check(len(found) == 0, "found %v", found)

	must(c.AddStreamKeyValPair(ctx, "zone_one_stream", "key1", "val1"), "add a pair")
	must(c.ModifyStreamKeyValPair(ctx, "zone_one_stream", "key1", "val2"), "change a pair")
	found, err = c.GetStreamKeyValPairs(ctx, "zone_one_stream")
	must(err, "read pairs")
	check(reflect.DeepEqual(found, client.KeyValPairs{"key1": "val2"}), "found %v", found)
	must(c.DeleteStreamKeyValuePair(ctx, "zone_one_stream", "key1"), "remove a pair")
	must(c.DeleteStreamKeyValPairs(ctx, "zone_one_stream"), "remove all pairs")
}

func main() {
	c, err := client.NewNginxClient(os.Args[1], client.WithCheckAPI())
	must(err, "find the API")
	httpServers(c)
	streamServers(c)
	statistics(c)
	pairs(c)
}
