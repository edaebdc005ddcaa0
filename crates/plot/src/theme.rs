//! Colours, dashes and markers.
//!
//! The colours of series are those of Okabe and Ito's set for colour-blind readers, darkened or lightened until they stand
//! out of white and dark paper with a contrast of 4.5 (WCAG's for text); tests compute it.

use std::fmt::Write;

/// Colours of series on light and on dark paper.
const SERIES: [[&str; 2]; 8] = [
    ["#0067b1", "#6cb6ff"],
    ["#c4500c", "#ff9a5c"],
    ["#00805a", "#5fd7a7"],
    ["#a23b88", "#e39ad2"],
    ["#8a6200", "#e6c34c"],
    ["#007a8c", "#5fd0e0"],
    ["#b3202c", "#ff8585"],
    ["#555f6b", "#aab4c0"],
];

/// Steps of a heat strip's colours, from little to much.
const RAMP: [[&str; 2]; RAMP_STEPS] = [
    ["#edf2f7", "#1b2430"],
    ["#d3e2ef", "#17324a"],
    ["#b4d0e7", "#164668"],
    ["#8ab6dc", "#1a5d87"],
    ["#5f99cd", "#2777a4"],
    ["#3d7bb8", "#4593bd"],
    ["#255e9c", "#6fb0d2"],
    ["#16437a", "#a0cde3"],
    ["#0b2a54", "#d8ecf6"],
];

/// How many colours a heat strip has.
pub(crate) const RAMP_STEPS: usize = 9;

/// Paper, text, quiet text, grid.
const PAPER: [&str; 2] = ["#ffffff", "#11161d"];
const INK: [&str; 2] = ["#1d2630", "#dfe7ef"];
const QUIET: [&str; 2] = ["#56616d", "#9aa7b5"];
const GRID: [&str; 2] = ["#dfe5eb", "#2a333e"];
const GOOD: [&str; 2] = ["#00805a", "#5fd7a7"];
const BAD: [&str; 2] = ["#b3202c", "#ff8585"];

/// Dashes of lines: beside colours, so that lines differ in print and for everybody.
const DASHES: [&str; 4] = ["none", "7 3", "2 2.5", "9 3 2 3"];

/// What a series' points look like.
pub(crate) enum Marker {
    Circle,
    Square,
    Diamond,
    Triangle,
}

/// The classes that give an element the colour and dashes of a series.
pub(crate) fn series_class(series: usize) -> String {
    format!("s{} d{}", series % SERIES.len(), dash(series))
}

/// The class of a series' colour alone.
pub(crate) fn colour_class(series: usize) -> String {
    format!("s{}", series % SERIES.len())
}

fn dash(series: usize) -> usize {
    // After all colours the dashes move on by one, so that the first 32 series all differ.
    (series + series / SERIES.len()) % DASHES.len()
}

pub(crate) fn marker(series: usize) -> Marker {
    match dash(series) {
        0 => Marker::Circle,
        1 => Marker::Square,
        2 => Marker::Diamond,
        _ => Marker::Triangle,
    }
}

/// The style sheet of pictures, on light and dark paper.
pub(crate) fn css() -> String {
    let mut css = String::from(
        ".plot{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',sans-serif;\
         font-size:13px}\n\
         .plot .title{font-size:15px;font-weight:600}\n\
         .plot .line,.plot .whisker,.plot .grid,.plot .minor,.plot .frame,.plot .rule{fill:none}\n\
         .plot .line{stroke-width:1.9;stroke-linejoin:round;stroke-linecap:butt}\n\
         .plot .line.quiet{stroke-width:1.4;stroke-dasharray:2 3}\n\
         .plot .whisker{stroke-width:1.3}\n\
         .plot .grid{stroke-width:1}\n.plot .minor{stroke-width:.5}\n\
         .plot .frame{stroke-width:1}\n.plot .rule{stroke-width:1.2;stroke-dasharray:5 4}\n\
         .plot .band{fill-opacity:.18}\n\
         .plot .area{fill-opacity:.32}\n",
    );
    for (index, dash) in DASHES.iter().enumerate().skip(1) {
        let _ = writeln!(css, ".plot .line.d{index}{{stroke-dasharray:{dash}}}");
    }
    colours(&mut css, 0);
    css.push_str("@media screen and (prefers-color-scheme:dark){\n");
    colours(&mut css, 1);
    css.push_str("}\n");
    css
}

fn colours(css: &mut String, paper: usize) {
    let (ink, quiet, grid) = (INK[paper], QUIET[paper], GRID[paper]);
    let _ = writeln!(
        css,
        ".plot .paper{{fill:{}}}\n.plot text{{fill:{ink}}}\n.plot text.quiet{{fill:{quiet}}}",
        PAPER[paper]
    );
    let _ = writeln!(
        css,
        ".plot .grid,.plot .minor{{stroke:{grid}}}\n.plot .frame,.plot .rule{{stroke:{quiet}}}\n.plot .ink{{stroke:{ink}}}"
    );
    for (index, colour) in SERIES.iter().enumerate() {
        let colour = colour[paper];
        let _ = writeln!(css, ".plot .s{index}{{stroke:{colour};fill:{colour}}}");
    }
    let _ = writeln!(css, ".plot .reference{{stroke:{quiet};fill:{quiet}}}");
    css.push_str(
        ".plot .line,.plot .whisker{fill:none}\n.plot .mark,.plot .band,.plot .area,.plot .bar{stroke:none}\n",
    );
    for (index, colour) in RAMP.iter().enumerate() {
        let _ = writeln!(css, ".plot .h{index}{{fill:{}}}", colour[paper]);
    }
}

/// The style sheet of a page's own parts, on light and dark paper.
pub(crate) fn page_css() -> String {
    let mut css = String::from(
        "body{margin:0 auto;max-width:1240px;padding:20px 16px 48px;line-height:1.5;\
         font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','DejaVu Sans',sans-serif}\n\
         h1{font-size:1.6rem;line-height:1.25;margin:.4em 0}\nh2{font-size:1.2rem;margin:2em 0 .4em}\n\
         h3{font-size:1.02rem;margin:1.4em 0 .3em}\n\
         p{max-width:72ch;margin:.6em 0}\nul{max-width:76ch;margin:.5em 0;padding-left:1.3em}\nli{margin:.2em 0}\n\
         details{margin:.8em 0;border-top:1px solid;padding-top:.5em}\n\
         summary{cursor:pointer;font-weight:600;padding:.3em 0}\n\
         pre{overflow-x:auto;padding:10px 12px;border-radius:6px;font-size:.85rem;line-height:1.4}\n\
         code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}\n\
         .figures{display:grid;gap:22px;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr))}\n\
         figure{margin:0;min-width:0}\nfigure svg{display:block;width:100%;height:auto;max-width:620px}\n\
         figcaption{font-size:.9rem;margin:4px 8px 0;max-width:66ch}\n\
         .scroll{overflow-x:auto;margin:.8em 0}\n\
         table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}\n\
         th,td{padding:5px 8px;border-bottom:1px solid;text-align:left;white-space:nowrap;vertical-align:top}\n\
         th.number,td.number{text-align:right}\nth{font-weight:600;white-space:normal;vertical-align:bottom}\n\
         td.good,td.bad{font-weight:600}\n\
         td.prose{white-space:normal;min-width:13em;max-width:34em}\n\
         @media print{html{font-size:75%}body{max-width:none;padding:0;font-size:10pt}h2,h3,summary{break-after:avoid}\
         details::details-content{content-visibility:visible;block-size:auto}td.prose{min-width:0}\
         figure,tr,pre{break-inside:avoid}.scroll{overflow:visible}table{font-size:6.8pt}td,th{padding:2px 4px}\
         pre{white-space:pre-wrap}\
         .figures{grid-template-columns:1fr 1fr;gap:12px}@page{margin:15mm}}\n",
    );
    let colours = |css: &mut String, paper: usize| {
        let (background, ink, quiet, grid) = (PAPER[paper], INK[paper], QUIET[paper], GRID[paper]);
        let _ = writeln!(css, "body{{background:{background};color:{ink}}}\nfigcaption,.quiet{{color:{quiet}}}");
        let _ = writeln!(css, "th,td,details{{border-color:{grid}}}\npre{{background:{}}}", RAMP[0][paper]);
        let _ = writeln!(css, "td.good{{color:{}}}\ntd.bad{{color:{}}}", GOOD[paper], BAD[paper]);
    };
    colours(&mut css, 0);
    css.push_str("@media screen and (prefers-color-scheme:dark){\n");
    colours(&mut css, 1);
    css.push_str("}\n");
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of `#rrggbb` (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let part = |index: usize| {
            let value = u8::from_str_radix(&colour[1 + 2 * index..3 + 2 * index], 16).unwrap();
            let value = f64::from(value) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(1) + 0.0722 * part(2)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn what_is_read_stands_out_of_its_paper() {
        for paper in 0..2 {
            for colour in SERIES.iter().chain([&INK, &QUIET, &GOOD, &BAD]) {
                let contrast = contrast(colour[paper], PAPER[paper]);
                assert!(contrast >= 4.5, "{} on {}: {contrast:.2}", colour[paper], PAPER[paper]);
            }
        }
    }

    #[test]
    fn more_is_further_from_the_paper() {
        for paper in 0..2 {
            let contrasts: Vec<f64> = RAMP.iter().map(|colour| contrast(colour[paper], PAPER[paper])).collect();
            assert!(contrasts.windows(2).all(|pair| pair[1] > pair[0] * 1.12), "{contrasts:?}");
        }
    }

    #[test]
    fn thirty_two_series_all_differ() {
        let classes: std::collections::BTreeSet<String> = (0..32).map(series_class).collect();
        assert_eq!(classes.len(), 32);
    }
}
