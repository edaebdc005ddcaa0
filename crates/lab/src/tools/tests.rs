use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::Instant;

use super::*;
use crate::plan::{Arrivals, Time};
use crate::target::{Handle, Target, Workload};

/// A load that every tool but httperf can send, or the one for httperf.
fn load(tool: Tool) -> Load {
    let open = tool == Tool::Httperf;
    let lasting = matches!(tool, Tool::Wrk | Tool::Locust);
    Load {
        log: None,
        name: "a load".into(),
        tool,
        users: (!open).then_some(5),
        rate: open.then_some(200.0),
        arrivals: Arrivals::Constant,
        think: Time::default(),
        ramp: Time::default(),
        // Longer than a busy machine may let the tool or the server wait.
        duration: lasting.then_some(Time(Duration::from_secs(2))),
        requests: (!lasting).then_some(200),
        warmup: Time::default(),
        timeout: Time(Duration::from_secs(20)),
        keep_alive: false,
        rtt: Time::default(),
        sources: 1,
        path: "/".into(),
        pages: 1,
        connections_max: None,
    }
}

fn spec(target: SocketAddr, load: Load) -> Spec {
    Spec { target, host: "lab.test".into(), load, sources: Vec::new(), seed: 7, schedule: None }
}

fn target(workload: Workload) -> Handle {
    let listen = "127.0.0.1:0".parse().unwrap();
    Target { name: "one".into(), listen, workload, ..Target::default() }.spawn().unwrap()
}

fn measure(spec: &Spec) -> anyhow::Result<Measured> {
    let directory = tempfile::tempdir().unwrap();
    run(spec, directory.path(), &Watch::default())
}

const QUICK: [Tool; 4] = [Tool::Ab, Tool::Siege, Tool::Httperf, Tool::Wrk];

#[test]
fn each_tool_counts_what_the_server_counts() {
    for tool in QUICK {
        let server = target(Workload::Delay(Duration::from_millis(4)));
        let measured = measure(&spec(server.address(), load(tool))).unwrap();
        let answered = server.stop().requests;
        assert_eq!(measured.tool, tool);
        assert_eq!(measured.closed_loop, tool != Tool::Httperf);
        assert_eq!(measured.errors, Default::default(), "{}", measured.output);
        assert_eq!(measured.ended, measured.answered);
        if tool == Tool::Wrk {
            // It ends with a request of each user under way.
            assert!(measured.answered > 0 && (measured.answered..=measured.answered + 5).contains(&answered));
        } else {
            assert_eq!((measured.answered, answered), (200, 200), "{tool:?}");
        }
        assert_eq!(measured.latency.count, measured.answered, "{tool:?}");
        let (min, mean) = (measured.latency.min.unwrap(), measured.latency.mean.unwrap());
        // Siege counts in steps of 10 ms and rounds down; httperf's clock stands still while it handles events.
        let least = if matches!(tool, Tool::Siege | Tool::Httperf) { 0.0 } else { 0.003 };
        assert!(min >= least && mean >= min && measured.latency.max.unwrap() >= mean, "{tool:?} {min} {mean}");
        assert!(measured.latency.quantile(0.5).unwrap() >= least, "{tool:?}");
        assert!(measured.seconds > 0.0 && measured.cpu.is_some() && !measured.output.is_empty());
    }
}

#[test]
fn a_refused_connection_is_an_error_of_the_balancer() {
    // Bound, not listening: it refuses, and no other program gets the port.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    for (tool, kind) in
        [(Tool::Ab, ErrorKind::Other), (Tool::Siege, ErrorKind::Refused), (Tool::Httperf, ErrorKind::Refused)]
    {
        let measured = measure(&spec(address, load(tool))).unwrap();
        assert_eq!((measured.answered, measured.ended), (0, 200), "{}", measured.output);
        assert_eq!(measured.errors, [(kind, 200)].into());
        assert_eq!(measured.latency.count, 0);
    }
    let error = measure(&spec(address, load(Tool::Wrk))).unwrap_err().to_string();
    assert!(error.contains("wrk failed") && error.contains("refused"), "{error}");
}

#[test]
fn locust_follows_the_locustfile() {
    let server = target(Workload::Delay(Duration::from_millis(4)));
    let load = Load {
        rtt: Time(Duration::from_millis(30)),
        ramp: Time(Duration::from_millis(500)),
        sources: 2,
        path: "/page/{}".into(),
        pages: 3,
        keep_alive: true,
        // Locust takes its time to begin on a busy machine.
        duration: Some(Time(Duration::from_secs(3))),
        ..load(Tool::Locust)
    };
    let spec = Spec { sources: crate::load::sources(2), ..spec(server.address(), load) };
    let measured = measure(&spec).unwrap();
    let counted = server.stop();
    assert_eq!(measured.errors, Default::default(), "{}", measured.output);
    // Each user may be in a request at the end; on a busy machine the last ones are not counted in time.
    let sent = measured.answered..=measured.answered + 20;
    assert!(measured.answered > 0 && sent.contains(&counted.requests), "{} of {sent:?}", counted.requests);
    assert!(counted.connections <= 5, "{}", counted.connections);
    // The delay of 30 ms, less what gevent's clock lags behind.
    assert!(measured.latency.min.unwrap() >= 0.025);
    assert!(measured.seconds >= 0.9, "{}", measured.seconds);
    assert_eq!(measured.statuses, [(200, measured.answered)].into());
    assert!(measured.timeline.iter().map(|second| second.answered).sum::<u64>() == measured.answered);
    assert!(measured.more.contains_key("locust_median") && measured.cpu.is_some_and(|cpu| cpu > 0.0));
}

#[test]
fn stopping_kills_the_tool() {
    for tool in QUICK {
        let server = target(Workload::Fixed);
        let long = Time(Duration::from_secs(120));
        let spec = spec(server.address(), Load { duration: Some(long), requests: None, ..load(tool) });
        let (watch, directory) = (Watch::default(), tempfile::tempdir().unwrap());
        let error = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&spec, directory.path(), &watch));
            let begin = Instant::now();
            while server.stats().requests == 0 && begin.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(5));
            }
            watch.stop.store(true, Ordering::Relaxed);
            running.join().unwrap().unwrap_err().to_string()
        });
        assert_eq!(error, format!("{} was stopped", tool.name()));
        // Nothing is sent any more.
        let mut before = u64::MAX;
        let begin = Instant::now();
        while server.stats().requests != before {
            assert!(begin.elapsed() < Duration::from_secs(60), "{tool:?} goes on");
            before = server.stats().requests;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn descriptors_that_httperf_lacks_are_its_own_errors() {
    let server = target(Workload::Delay(Duration::from_secs(1)));
    let load = Load { connections_max: Some(30), requests: Some(100), ..load(Tool::Httperf) };
    let measured = measure(&spec(server.address(), load)).unwrap();
    assert!(measured.errors[&ErrorKind::Descriptors] > 0, "{}", measured.output);
    assert_eq!(measured.ended, 100);
    assert!(measured.connections_max.unwrap() <= 30);
}

/// Answers every request and hands over its head and its client's address, until the receiver is gone.
fn heads() -> (SocketAddr, mpsc::Receiver<(SocketAddr, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let Ok(from) = stream.peer_addr() else { continue };
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            // Before the answer, after which the tool may end and the test look.
            if !head.is_empty() && sender.send((from, head.join("\n"))).is_err() {
                break;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    (address, receiver)
}

#[test]
fn requests_are_as_the_load_says() {
    for tool in QUICK {
        let (address, heads) = heads();
        let pages = if matches!(tool, Tool::Siege | Tool::Wrk) { 9 } else { 1 };
        let load = Load { path: "/page/{}".into(), pages, requests: load(tool).requests.map(|_| 40), ..load(tool) };
        let mut spec = spec(address, load);
        if tool == Tool::Ab {
            spec.sources = vec![[127, 1, 2, 3].into()];
        }
        measure(&spec).unwrap();
        let heads: Vec<(SocketAddr, String)> = heads.try_iter().collect();
        assert!(heads.len() >= 40 || tool == Tool::Wrk, "{tool:?} {}", heads.len());
        let mut seen = std::collections::BTreeSet::new();
        for (from, head) in &heads {
            assert!(head.contains("Host: lab.test"), "{tool:?} {head}");
            assert!(
                tool == Tool::Httperf || !head.to_lowercase().contains("connection: keep-alive"),
                "{tool:?} {head}"
            );
            assert_eq!(from.ip().to_string() == "127.1.2.3", tool == Tool::Ab);
            seen.insert(head.split(' ').nth(1).unwrap().to_owned());
        }
        assert!(if pages == 1 { seen == ["/page/0".to_owned()].into() } else { seen.len() > 1 }, "{tool:?} {seen:?}");
    }
}

#[test]
fn a_source_that_a_tool_cannot_have_is_an_error() {
    for (tool, sources) in [(Tool::Siege, 1), (Tool::Httperf, 1), (Tool::Wrk, 1), (Tool::Ab, 2)] {
        let sources = crate::load::sources(sources);
        let spec = Spec { sources, ..spec("127.0.0.1:9".parse().unwrap(), load(tool)) };
        let error = measure(&spec).unwrap_err().to_string();
        assert!(error.contains("cannot choose the address that it sends from"), "{error}");
    }
}

#[test]
fn what_a_tool_cannot_do_is_said() {
    let second = || Time(Duration::from_secs(1));
    type Change = fn(&mut Load, Time);
    let changes: [Change; 12] = [
        |load, _| (load.users, load.rate) = (None, Some(10.0)),
        |load, _| (load.users, load.rate) = (Some(10), None),
        |load, time| load.think = time,
        |load, time| load.ramp = time,
        |load, time| load.warmup = time,
        |load, time| load.rtt = time,
        |load, _| load.sources = 2,
        |load, _| load.pages = 2,
        |load, _| load.keep_alive = true,
        |load, _| load.timeout = Time(Duration::from_millis(1500)),
        |load, time| (load.duration, load.requests) = (Some(time), None),
        |load, _| (load.duration, load.requests, load.connections_max) = (None, Some(3), Some(2000)),
    ];
    let mut said = String::new();
    for tool in [Tool::Ab, Tool::Siege, Tool::Httperf, Tool::Wrk, Tool::Locust, Tool::Balanza] {
        assert_eq!(load(tool).check_tool(), Ok(()));
        for change in changes {
            let mut load = load(tool);
            change(&mut load, second());
            if let Err(reason) = load.check_tool() {
                said += &format!("{reason}\n");
            }
        }
    }
    insta::assert_snapshot!(said);
}

#[test]
fn a_plan_with_a_load_that_its_tool_cannot_send_is_refused() {
    let plan = crate::plan::Plan::built_in().iter().find(|plan| plan.name == "unne-2023").unwrap();
    let text = plan.text.replace("users = 10\n", "rate = 10.0\n");
    let error = crate::plan::Plan::parse(&text).unwrap_err().render(false);
    assert!(error.contains("ab has users and no rate; use tool balanza or httperf for that"), "{error}");
}

#[test]
fn a_tool_that_used_its_processor_up_was_the_bottleneck() {
    let measured = |tool, cpu| Measured { tool, cpu: Some(cpu), ..Measured::default() };
    assert_eq!(invalid(&measured(Tool::Wrk, 0.7)), Vec::<String>::new());
    assert_eq!(invalid(&measured(Tool::Httperf, 1.0)), Vec::<String>::new());
    let why = invalid(&measured(Tool::Locust, 0.98));
    assert_eq!(why, ["locust used 98 % of a processor: it was the bottleneck, fewer users show more"]);
}

#[test]
fn the_end_of_the_output_is_kept() {
    assert_eq!(tail("short".into()), "short");
    let long = format!("{}é{}", "a".repeat(100), "b".repeat(OUTPUT_MAX - 1));
    assert_eq!(tail(long), "b".repeat(OUTPUT_MAX - 1));
}

mod recorded {
    //! What the tools of Debian 12 and Locust 2.47.0 printed: `mixed` is a server that in turn answers 200, 503, 404,
    //! resets, breaks off, sends no HTTP, and closes after 2 s.

    use super::*;

    /// As JSON, with the parts that are long in short.
    fn show(result: anyhow::Result<Measured>) -> String {
        let mut measured = result.unwrap();
        let parts = [Some(&mut measured.latency), measured.connect.as_mut(), measured.waiting.as_mut()];
        for latency in parts.into_iter().flatten().filter(|latency| !latency.histogram.is_empty()) {
            let count: u64 = latency.histogram.iter().map(|(_, count)| count).sum();
            assert_eq!(count, latency.count);
            assert!(latency.histogram.is_sorted_by(|a, b| a.0 < b.0));
            latency.histogram.truncate(2);
        }
        measured.ended = measured.answered + measured.errors.values().sum::<u64>();
        serde_json::to_string_pretty(&measured).unwrap()
    }

    macro_rules! file {
        ($name:literal) => {
            include_str!(concat!("recorded/", $name))
        };
    }

    #[test]
    fn ab() {
        insta::assert_snapshot!("ab", show(ab::parse(file!("ab.txt"), file!("ab.csv"), file!("ab.tsv"))));
        insta::assert_snapshot!("ab_503", show(ab::parse(file!("ab-503.txt"), "", "")));
        insta::assert_snapshot!("ab_refused", show(ab::parse(file!("ab-refused.txt"), "", "")));
        insta::assert_snapshot!("ab_mixed", show(ab::parse(file!("ab-mixed.txt"), "", "")));
    }

    #[test]
    fn siege() {
        insta::assert_snapshot!("siege", show(siege::parse(file!("siege.txt"), file!("siege.requests.txt"))));
        let mixed = siege::parse(file!("siege-mixed.txt"), file!("siege-mixed.requests.txt"));
        insta::assert_snapshot!("siege_mixed", show(mixed));
        insta::assert_snapshot!("siege_refused", show(siege::parse(file!("siege-refused.txt"), "")));
    }

    #[test]
    fn httperf() {
        insta::assert_snapshot!("httperf", show(httperf::measured(file!("httperf.txt"))));
        insta::assert_snapshot!("httperf_mixed", show(httperf::measured(file!("httperf-mixed.txt"))));
        insta::assert_snapshot!("httperf_timeout", show(httperf::measured(file!("httperf-timeout.txt"))));
        insta::assert_snapshot!("httperf_refused", show(httperf::measured(file!("httperf-refused.txt"))));
        insta::assert_snapshot!("httperf_descriptors", show(httperf::measured(file!("httperf-descriptors.txt"))));
    }

    #[test]
    fn wrk() {
        insta::assert_snapshot!("wrk", show(wrk::measured(file!("wrk.txt"))));
        insta::assert_snapshot!("wrk_mixed", show(wrk::measured(file!("wrk-mixed.txt"))));
        insta::assert_snapshot!("wrk_timeout", show(wrk::measured(file!("wrk-timeout.txt"))));
    }

    #[test]
    fn locust() {
        insta::assert_snapshot!("locust_mixed", show(locust::parse(file!("locust-mixed.json"))));
    }

    #[test]
    fn what_is_no_output_of_a_tool_is_an_error() {
        for text in ["", "Segmentation fault\n", "Total: connections\n", "balanza {}\n", "{}"] {
            assert!(ab::parse(text, "", "").is_err());
            assert!(siege::parse(text, "").is_err());
            assert!(httperf::measured(text).is_err());
            assert!(wrk::measured(text).is_err());
            assert!(locust::parse(text).is_err());
        }
    }
}
