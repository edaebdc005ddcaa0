//! Claims are read as they are written, and mistakes are said where they are.

use proptest::prelude::*;

use super::*;
use crate::metrics::{METRICS, Of};

#[test]
fn precedence() {
    let same = [
        ("rps('A') < 1 or 2 < 3 and not 3 < 4", "(rps('A') < 1) or ((2 < 3) and (not (3 < 4)))"),
        ("1 - 2 - 3 < 1 + 2 * 3", "((1 - 2) - 3) < (1 + (2 * 3))"),
        ("8 / 4 / 2 >= -1 * 2", "((8 / 4) / 2) >= ((-1) * 2)"),
        ("mean('A') ~ 2 * 3 within 5 %", "mean('A') ~ (2 * 3) within (5%)"),
        ("1 < 2 or 2 < 3 or 3 < 4", "(1 < 2 or 2 < 3) or 3 < 4"),
    ];
    for (bare, full) in same {
        assert_eq!(parse(bare), parse(full), "{bare}");
    }
    for (bare, other) in [("1 - (2 - 3) < 0", "1 - 2 - 3 < 0"), ("not (1 < 2 and 2 < 3)", "not 1 < 2 and 2 < 3")] {
        assert_ne!(parse(bare), parse(other), "{bare}");
    }
}

#[test]
fn constants_have_units() {
    for (text, value) in [("5%", 0.05), ("10ms", 0.01), ("1.5s", 1.5), ("250us", 250e-6), ("1e3", 1000.0), (".5", 0.5)]
    {
        match parse(&format!("rps('A') < {text}")).unwrap().claim {
            Claim::Compare { right, .. } => assert_eq!(right.constant(), Some(value), "{text}"),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn names_with_their_places() {
    let text = r#"share("RR", farm="even", server='s1') ~ 1/3 within 2% and tie(rps("RR"), rps("LC", load="250"))"#;
    let expression = parse(text).unwrap();
    let names = expression.names();
    for (_, name) in &names {
        let there = text[name.place..].trim_start_matches(['"', '\'']);
        assert!(there.starts_with(&name.text), "{name:?}");
    }
    let words: Vec<(What, &str)> = names.iter().map(|(what, name)| (*what, name.text.as_str())).collect();
    assert_eq!(
        words,
        [
            (What::Metric, "share"),
            (What::Algorithm, "RR"),
            (What::Farm, "even"),
            (What::Server, "s1"),
            (What::Metric, "rps"),
            (What::Algorithm, "RR"),
            (What::Metric, "rps"),
            (What::Algorithm, "LC"),
            (What::Load, "250"),
        ]
    );
}

fn shown(text: &str, error: &Error) -> String {
    format!("{text}\n{}^ {error}\n", " ".repeat(text[..error.place].chars().count()))
}

#[test]
fn mistakes_are_said_where_they_are() {
    let wrong = [
        "",
        "rps(\"RR\")",
        "rps(\"RR\") = 3",
        "rps(\"RR\") < 3 < 4",
        "rps(\"RR\") < ",
        "rps(\"RR\" < 3",
        "rps(\"RR) < 3",
        "rps(RR) < 3",
        "rps < 3",
        "rsp(\"RR\") < 3",
        "latency(\"RR\") < 3",
        "\"RR\" < \"LC\"",
        "rps(\"RR\", lod=\"1\") < 3",
        "rps(\"RR\", load=1) < 3",
        "rps(\"RR\", load=\"1\", load=\"2\") < 3",
        "rps(\"RR\", server=\"s1\") < 3",
        "share(\"RR\") < 3",
        "rps(\"RR\") ~ 3",
        "rps(\"RR\") ~ 0 within 5%",
        "rps(\"RR\") ~ 3 within 5",
        "tie(rps(\"RR\"), rps(\"LC\")) < 3",
        "tie(rps(\"RR\") rps(\"LC\"))",
        "rps(\"RR\") and rps(\"LC\")",
        "rps(\"RR\") < 3 rps(\"LC\") < 3",
        "rps(\"RR\") ≈ 3",
        "rps(\"RR\") < 3x",
        "rps(\"RR\") < 1.2.3",
        "(rps(\"RR\") < 3",
    ];
    let messages: String = wrong.iter().map(|text| shown(text, &parse(text).unwrap_err())).collect();
    insta::assert_snapshot!(messages);
}

#[test]
fn depth_has_an_end() {
    // A main thread's stack: the compiler needs more than a test's where it does not optimize.
    let test = std::thread::Builder::new().stack_size(8 << 20).spawn(|| {
        for start in ["(", "-", "not ", "least("] {
            let text = format!("{}1 < 2", start.repeat(100));
            assert!(parse(&text).unwrap_err().message.contains("levels"), "{start}");
        }
        let sum = |terms: usize| format!("{}1 < 2", "1 + ".repeat(terms));
        assert!(parse(&sum(100_000)).unwrap_err().message.contains("more than"));
        assert_eq!(parse(&sum(490)).map(|expression| expression.to_string()), Ok(sum(490)));
    });
    test.unwrap().join().unwrap();
}

fn name() -> impl Strategy<Value = Name> {
    "[a-zA-Z0-9 :+=.,()ß-]{0,8}\"?".prop_map(|text| Name { text, place: 0 })
}

fn measured() -> impl Strategy<Value = Number> {
    let maybe = || prop::option::of(name());
    (0..METRICS.len(), name(), maybe(), maybe(), maybe(), name()).prop_map(|(i, algorithm, farm, load, system, at)| {
        Number::Measured(Measurement {
            metric: Name { text: METRICS[i].name.into(), place: 0 },
            algorithm,
            farm,
            load,
            system,
            server: (METRICS[i].of == Of::Server).then_some(at),
        })
    })
}

fn constant() -> impl Strategy<Value = Number> {
    let units = [Unit::None, Unit::Percent, Unit::Microseconds, Unit::Milliseconds, Unit::Seconds];
    (1u32..1_000_000, 0i32..6, prop::sample::select(units.to_vec())).prop_map(|(digits, places, unit)| {
        let written: f64 = format!("{digits}e-{places}").parse().unwrap();
        Number::Constant(written * unit.size(), unit)
    })
}

fn number() -> impl Strategy<Value = Number> {
    use Operator::{Add, Divide, Greatest, Least, Multiply, Subtract};
    let operators = vec![Add, Subtract, Multiply, Divide, Least, Greatest];
    prop_oneof![constant(), measured()].prop_recursive(3, 8, 2, move |inner| {
        prop_oneof![
            inner.clone().prop_map(|number| Number::Negative(Box::new(number))),
            (prop::sample::select(operators.clone()), inner.clone(), inner)
                .prop_map(|(operator, a, b)| Number::Arithmetic(operator, Box::new(a), Box::new(b))),
        ]
    })
}

fn any_claim() -> impl Strategy<Value = Claim> {
    let orders = vec![Order::Less, Order::AtMost, Order::More, Order::AtLeast];
    let simple = prop_oneof![
        (number(), prop::sample::select(orders), number()).prop_map(|(left, order, right)| Claim::Compare {
            left,
            order,
            right
        }),
        (number(), measured(), 1u8..99).prop_map(|(left, right, percent)| {
            Claim::Near { left, right, within: Number::Constant(f64::from(percent) * 1e-2, Unit::Percent) }
        }),
        (number(), number()).prop_map(|(left, right)| Claim::Tie(left, right)),
    ];
    simple.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|claim| Claim::Not(Box::new(claim))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Claim::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner).prop_map(|(a, b)| Claim::Or(Box::new(a), Box::new(b))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_shown_reads_back(claim in any_claim()) {
        let expression = Expression { claim };
        let text = expression.to_string();
        prop_assert_eq!(parse(&text), Ok(expression), "{}", text);
    }

    #[test]
    fn no_text_breaks_it(text in "[rpshae()\"',=<>~+*/%. 0-9ndotiß-]{0,40}") {
        if let Err(error) = parse(&text) {
            prop_assert!(text.is_char_boundary(error.place), "{:?}", error);
        }
    }
}
