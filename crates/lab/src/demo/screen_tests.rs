use super::*;
use crate::demo::load::Counts;

fn view(algorithm: &str) -> View {
    let milliseconds = |n| Some(Duration::from_millis(n));
    let row = |index: usize| Row {
        name: format!("s{}", index + 1),
        speed: [1.0, 0.5, 0.25][index],
        capacity: [400.0, 200.0, 100.0][index],
        share: [0.6, 0.3, 0.1][index],
        in_flight: index as u64 + 3,
        requests: [12, 6, 2][index],
        latencies: Latencies { rate: [6.0, 3.0, 1.0][index], p50: milliseconds(40), p99: milliseconds(100) },
        ..Row::default()
    };
    View {
        algorithm: algorithm.into(),
        rows: (0..3).map(row).collect(),
        total: Latencies { rate: 10.0, p50: milliseconds(40), p99: milliseconds(100) },
        counts: Counts { answered: 20, failed: 0, held: 0 },
        rate: 10,
        why: "equal weights, so equal shares, however fast a server is".into(),
        pick: "round_robin turn".into(),
        ..View::default()
    }
}

fn frame<'a>(views: &'a [View], controls: &'a Controls, size: (usize, usize)) -> Frame<'a> {
    Frame { views, controls, keys: true, elapsed: Duration::from_secs(2), size }
}

fn drawn(views: &[View], controls: &Controls, size: (usize, usize)) -> Vec<String> {
    fit(picture(&frame(views, controls, size)), size.1).iter().map(|line| line.text(false)).collect()
}

#[test]
fn a_wide_terminal_shows_all() {
    let mut view = view("round_robin");
    view.rows[1].condition = Condition::Slow;
    view.rows[1].speed = 0.125;
    view.rows[2].condition = Condition::Killed;
    view.rows[2].errors = 4;
    view.overload = Some("OVERLOAD: 900 requests/s for servers that can answer 700".into());
    view.news = vec!["s3 is killed: connections are refused".into()];
    view.trouble = Some("error log: 4 error; last: connect() failed".into());
    insta::assert_snapshot!(drawn(&[view], &Controls::default(), (100, 40)).join("\n"));
}

#[test]
fn a_narrow_terminal_keeps_what_matters() {
    for width in [30, 40, 60, 80, 120] {
        let lines = drawn(&[view("least_conn")], &Controls::default(), (width, 40));
        for line in &lines[1..5] {
            assert!(line.chars().count() <= width.max(32), "{width}: {line}");
        }
        assert!(lines[1].contains("req/s") && lines[1].contains("p99") && lines[1].contains("errors"), "{lines:?}");
        assert_eq!(lines[2].contains('\u{2588}'), width >= 80, "{width}: {lines:?}");
    }
}

#[test]
fn two_farms_are_one_above_the_other_and_fit_a_narrow_terminal() {
    let views = [view("round_robin"), view("least_conn")];
    for width in [40, 60, 80, 120] {
        let lines = drawn(&views, &Controls::default(), (width, 40));
        let find =
            |text: &str| lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{lines:?}"));
        let (first, second) = (find("round_robin "), find("least_conn "));
        assert!(second > first + 4, "{lines:?}");
        assert_eq!(lines[first + 1..first + 5], lines[second + 1..second + 5], "equal farms have equal columns");
        assert!(lines[second + 1..second + 5].iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
    }
}

#[test]
fn a_low_terminal_keeps_the_tables() {
    let views = [view("round_robin"), view("least_conn")];
    let lines = drawn(&views, &Controls::default(), (80, 14));
    assert!(lines.len() <= 14);
    assert_eq!(lines.iter().filter(|line| line.contains(" s3 ")).count(), 2, "{lines:?}");
    assert!(lines.last().unwrap().contains("k kill"), "{lines:?}");
}

#[test]
fn the_focus_and_the_prompt_are_shown() {
    let views = [view("round_robin"), view("least_conn")];
    let controls = Controls { server: 2, farm: 1, prompt: Some("rand".into()) };
    let lines = drawn(&views, &controls, (80, 40));
    assert!(lines.iter().any(|line| line.starts_with("\u{25b6} least_conn")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("\u{203a} s3")), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("  algorithm: rand_"), "{lines:?}");
}

#[test]
fn a_terminal_sees_tables_drawn_over_themselves() {
    let mut screen = Screen::new(true, true);
    let (views, controls) = ([view("round_robin")], Controls::default());
    let mut out = Vec::new();
    screen.draw(&mut out, &frame(&views, &controls, (100, 40))).unwrap();
    out.push(b'~');
    screen.draw(&mut out, &frame(&views, &controls, (100, 40))).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (first, second) = text.split_once('~').unwrap();
    let lines = first.matches('\n').count();
    assert!(second.starts_with(&format!("\x1b[{lines}A")), "the cursor returns to the first line");
    assert!(first.contains("\x1b[32m"), "in colour");
    let mut plain = Vec::new();
    Screen::new(true, false).draw(&mut plain, &frame(&views, &controls, (100, 40))).unwrap();
    assert!(!String::from_utf8(plain).unwrap().contains("\x1b[32m"));
}

#[test]
fn elsewhere_there_is_a_line_each_time() {
    let mut view = view("round_robin");
    view.news = vec!["reloaded: round_robin".into()];
    let mut out = Vec::new();
    Screen::new(false, true).draw(&mut out, &frame(&[view], &Controls::default(), (80, 24))).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn bars_are_as_long_as_the_share() {
    assert_eq!(bar(0.0, 30), "");
    assert_eq!(bar(1.0, 30).chars().count(), 30);
    assert_eq!(bar(0.5, 30), "█".repeat(15));
    assert_eq!(bar(1.0 / 240.0, 30), "▏");
}

#[test]
fn a_low_terminal_keeps_the_chosen_server_and_the_keys() {
    let many = |algorithm: &str| {
        let mut view = view(algorithm);
        view.rows = (0..16).map(|index| Row { name: format!("s{}", index + 1), ..view.rows[0].clone() }).collect();
        view
    };
    let views = [many("round_robin"), many("least_conn")];
    for (prompt, last) in [(None, "k kill"), (Some("rand".to_string()), "algorithm: rand_")] {
        let controls = Controls { server: 12, farm: 1, prompt };
        let lines = drawn(&views, &controls, (80, 20));
        assert_eq!(lines.len(), 20);
        assert_eq!(lines.iter().filter(|line| line.contains(" s13 ")).count(), 2, "{lines:?}");
        assert!(lines.last().unwrap().contains(last), "{lines:?}");
    }
}
