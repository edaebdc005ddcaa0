// Why a server gets more or less than the others.

const STATES = {
  up: "takes requests",
  backup: "takes requests if no other server is eligible",
  draining: "takes no new clients",
  down: "taken out of service",
  unavail: "failed too often",
  unhealthy: "fails its health checks",
  checking: "was not checked yet",
};

function median(values) {
  const sorted = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
  return sorted.length > 0 ? sorted[Math.floor(sorted.length / 2)] : null;
}

/** The reasons in sentences, the strongest first. */
function reasons(server) {
  const { peer, upstream, own } = server;
  const texts = [];
  if (peer.state === "down") return ["It is down: an operator, its configuration or its own report took it out of service."];
  if (peer.state === "draining") {
    const texts = [`It drains: it gets requests only from clients that are bound to it. ${exact(peer.active)} in flight are left.`];
    if (server.secondsLeft !== null) {
      texts.push(`In ${duration(server.secondsLeft * 1000)} it is set down, and what it still serves is closed.`);
    }
    return texts;
  }
  if (peer.state === "unavail") return ["It failed max_fails times: it is tried again after fail_timeout."];
  if (peer.state === "unhealthy") return ["It fails its health checks: it gets no requests until it passes them."];
  if (peer.state === "checking") return ["It gets no requests before its first health check."];
  const others = upstream.servers.filter((other) => other !== server && other.peer.state === "up");
  if (peer.backup && others.some((other) => !other.peer.backup)) {
    return ["It is a backup: it gets requests only if no other server is eligible."];
  }
  if (others.length === 0) return ["No other server is eligible: it gets all requests."];
  if (server.share === null) return ["The upstream has hardly any requests at the moment."];
  const ratio = server.share / server.expected;
  const shares = `${percent(server.share)} of the requests; by weight it would be ${percent(server.expected)}`;
  const isFair = ratio > 0.85 && ratio < 1.18;
  if (isFair) texts.push(`It gets ${shares}. That is its share.`);
  else texts.push(`It gets ${ratio > 1 ? "more" : "less"} than its weight's share: ${shares}.`);
  if (peer.max_conns > 0 && peer.active >= peer.max_conns) {
    texts.push(`Its limit of ${exact(peer.max_conns)} requests in flight is reached.`);
  }
  if (own && own.share !== 100) texts.push(`Its load report has set its share to ${own.share} %.`);
  const compare = (mine, theirs, slower, faster) => {
    if (isFair || mine === null || mine === undefined || theirs === null) return;
    if (mine > theirs * 1.5 && ratio < 1) texts.push(slower);
    if (theirs > mine * 1.5 && ratio > 1) texts.push(faster);
  };
  const p50 = own?.times?.p50;
  const theirs = median(others.map((other) => other.own?.times?.p50));
  const times = `p50 ${time(p50)}, the others ${time(theirs)}`;
  const before = texts.length;
  compare(p50, theirs, `Its responses take longer (${times}).`, `Its responses take less time (${times}).`);
  const load = median(others.map((other) => other.peer.active / other.peer.weight));
  const active = peer.active / peer.weight;
  const loads = `${number(peer.active)} in flight at weight ${peer.weight}, the others ${number(load)} for each unit of weight`;
  compare(active, load, `It is busier than the others (${loads}).`, `It is less busy than the others (${loads}).`);
  if (server.errorShare > 0.01) texts.push(`${percent(server.errorShare)} of its requests fail.`);
  if (texts.length === before && before === 1 && !isFair) {
    texts.push("Times and requests in flight do not explain it: clients or keys that are bound to a server may, or slow start.");
  }
  const lost = upstream.servers.filter((other) => PROBLEMS.has(other.peer.state) && !other.peer.backup).length;
  if (lost > 0) texts.push(`${lost} of ${upstream.servers.length} servers are out of service: the others share their requests.`);
  return texts;
}
