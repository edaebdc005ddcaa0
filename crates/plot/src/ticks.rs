//! Round numbers along an axis, and how they are written.

/// How an axis writes its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain,
    /// Seconds, written as 20 ms or 3 s.
    Seconds,
    /// Parts of one, written as percent.
    Percent,
}

/// Round positions within `low..=high`, about `wanted` of them: multiples of 1, 2 or 5 times a power of ten.
pub(crate) fn linear(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let step = step(low, high, wanted);
    let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
    let count = (last - first + 1.0).clamp(0.0, 64.0) as usize;
    // Zero without a sign, and no sums: n * step is as exact as it gets.
    (0..count).map(|index| (first + index as f64) * step + 0.0).map(|tick| tick.clamp(low, high)).collect()
}

/// The distance of the ticks of [`linear`].
pub(crate) fn step(low: f64, high: f64, wanted: usize) -> f64 {
    let rough = (high - low) / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factor = match rough / power {
        part if part <= 1.0 + 1e-9 => 1.0,
        part if part <= 2.0 + 1e-9 => 2.0,
        part if part <= 5.0 + 1e-9 => 5.0,
        _ => 10.0,
    };
    factor * power
}

/// Round positions within `low..=high` of a logarithmic axis: powers of ten, with 2 and 5 between them or plain steps
/// where there are few powers; and the minor ones that get a thin line but no number.
pub(crate) fn log(low: f64, high: f64, wanted: usize) -> (Vec<f64>, Vec<f64>) {
    let within = |tick: f64| tick >= low * (1.0 - 1e-9) && tick <= high * (1.0 + 1e-9);
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = high.log10() - low.log10();
    let multiples = |factors: &[f64]| -> Vec<f64> {
        (first..=last)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
            .filter(|&tick| within(tick))
            .map(|tick| tick.clamp(low, high))
            .collect()
    };
    let minor = if decades <= 6.0 { multiples(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]) } else { Vec::new() };
    if decades < 0.7 {
        return (linear(low, high, wanted), Vec::new());
    }
    if decades < 2.2 {
        return (multiples(&[1.0, 2.0, 5.0]), minor);
    }
    let every = (decades / wanted.max(1) as f64).ceil().max(1.0) as i32;
    let powers = (first..=last).filter(|power| power % every == 0).map(|power| 10f64.powi(power));
    (powers.filter(|&tick| within(tick)).map(|tick| tick.clamp(low, high)).collect(), minor)
}

/// The ticks' labels: all of a linear axis with the same unit and number of decimals.
pub(crate) fn labels(ticks: &[f64], log: bool, format: Format) -> Vec<String> {
    if log || ticks.len() < 2 {
        return ticks.iter().map(|&tick| number(tick, format)).collect();
    }
    let largest = ticks.iter().fold(0.0f64, |most, tick| most.max(tick.abs()));
    let (unit, suffix) = unit(largest, format);
    let step = (ticks[1] - ticks[0]) / unit;
    // 0.25 needs two decimals and 0.5 one.
    let decimals = (0..=9).find(|&places| is_whole(step * 10f64.powi(places))).unwrap_or(9) as usize;
    let extreme = largest / unit >= 1e7 || step < 1e-6;
    let digits = (largest / unit / step).log10().round().clamp(0.0, 9.0) as usize;
    ticks
        .iter()
        .map(|&tick| match format {
            _ if tick == 0.0 && (format == Format::Seconds || extreme) => "0".to_string(),
            _ if extreme => format!("{:.digits$e}{suffix}", tick / unit),
            _ => format!("{:.decimals$}{suffix}", tick / unit),
        })
        .collect()
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < 1e-6 * value.abs().max(1e-3) && value.round() != 0.0
}

/// A single number as people read it: three significant digits, with a unit if it is large or small.
pub(crate) fn number(value: f64, format: Format) -> String {
    if !(value * 100.0).is_finite() {
        return "–".to_string();
    }
    if value == 0.0 {
        return if format == Format::Percent { "0%" } else { "0" }.to_string();
    }
    let (unit, suffix) = unit(value.abs(), format);
    let scaled = value / unit;
    if scaled.abs() < 1e-3 * 0.9999 || scaled.abs() >= 1e7 {
        return power_of_ten(scaled) + suffix;
    }
    let decimals = (2 - scaled.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{scaled:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

/// The unit of values up to this one.
fn unit(largest: f64, format: Format) -> (f64, &'static str) {
    match format {
        Format::Percent => (0.01, "%"),
        Format::Seconds => match largest {
            value if value < 0.999_999e-6 => (1e-9, " ns"),
            value if value < 0.999_999e-3 => (1e-6, " µs"),
            value if value < 0.999_999 => (1e-3, " ms"),
            _ => (1.0, " s"),
        },
        Format::Plain => match largest {
            value if (0.999_999e9..1e13).contains(&value) => (1e9, "G"),
            value if (0.999_999e6..1e13).contains(&value) => (1e6, "M"),
            value if (0.999_999e4..1e13).contains(&value) => (1e3, "k"),
            _ => (1.0, ""),
        },
    }
}

/// 10⁻⁴, or 2·10⁻⁴.
fn power_of_ten(value: f64) -> String {
    let power = (value.abs().log10() + 1e-9).floor() as i32;
    // In two steps, since a power below -308 is no normal number.
    let factor = value / 10f64.powi(power / 2) / 10f64.powi(power - power / 2);
    let exponent: String = power
        .to_string()
        .chars()
        .map(|char| match char.to_digit(10) {
            Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
            None => '⁻',
        })
        .collect();
    match format!("{factor:.2}").trim_end_matches('0').trim_end_matches('.') {
        "1" => format!("10{exponent}"),
        factor => format!("{factor}·10{exponent}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(linear(0.0, 1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear(3.0, 97.0, 4), [50.0]);
        assert_eq!(linear(-7.0, 7.0, 5), [-5.0, 0.0, 5.0]);
        assert_eq!(log(0.001, 1.0, 6).0, [0.001, 0.01, 0.1, 1.0]);
        assert_eq!(log(1.0, 20.0, 6).0, [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(log(1e-12, 1.0, 6).0, [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 0.01, 1.0]);
        assert_eq!(log(10.0, 20.0, 5).0, [10.0, 12.0, 14.0, 16.0, 18.0, 20.0]);
    }

    #[test]
    fn labels_of_an_axis_agree() {
        let labels_of = |low, high, format| labels(&linear(low, high, 4), false, format);
        assert_eq!(labels_of(0.0, 1.0, Format::Plain), ["0.0", "0.5", "1.0"]);
        assert_eq!(labels_of(0.0, 20_000.0, Format::Plain), ["0k", "5k", "10k", "15k", "20k"]);
        assert_eq!(labels_of(0.0, 1.0, Format::Percent), ["0%", "50%", "100%"]);
        assert_eq!(labels_of(0.0, 0.2, Format::Seconds), ["0", "50 ms", "100 ms", "150 ms", "200 ms"]);
        assert_eq!(labels(&log(1e-5, 1.0, 6).0, true, Format::Plain), ["10⁻⁵", "10⁻⁴", "0.001", "0.01", "0.1", "1"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (1.2345, "1.23"),
            (123.45, "123"),
            (1234.5, "1234"),
            (12345.0, "12.3k"),
            (2.5e6, "2.5M"),
            (0.00025, "2.5·10⁻⁴"),
            (1e-310, "10⁻³¹⁰"),
            (-0.5, "-0.5"),
            (3e20, "3·10²⁰"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value, Format::Plain), text);
        }
        assert_eq!(number(0.0153, Format::Seconds), "15.3 ms");
        assert_eq!(number(0.0153, Format::Percent), "1.53%");
    }
}
