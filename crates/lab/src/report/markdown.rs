//! The report as Markdown, for a repository: claims, the document beside ours, a table for each load, the figures' files.

use super::charts::Figure;
use super::claims;
use super::grid::escape;
use super::tables::{self, places};
use super::words::{self, paragraphs};
use crate::environment::Environment;
use crate::summary::Summary;

/// The report with references to `figures/NAME.svg` beside it, as [`super::write`] puts them there.
pub fn markdown(summary: &Summary, environment: &Environment) -> String {
    with_figures(summary, environment, &figures(summary))
}

/// The pictures of the report as files: those by load, and those of the farm and load that it shows first.
pub(super) fn figures(summary: &Summary) -> Vec<Figure> {
    let mut figures = super::charts::over_loads(summary);
    figures.extend(
        tables::main_place(summary).into_iter().flat_map(|place| super::distributions::of_place(summary, place)),
    );
    figures
}

pub(super) fn with_figures(summary: &Summary, environment: &Environment, figures: &[Figure]) -> String {
    let plan = &summary.plan;
    let mut out = format!("# {}\n\n", escape(&plan.title));
    for paragraph in paragraphs(&plan.about) {
        out.push_str(&format!("{}\n\n", escape(&paragraph)));
    }
    if summary.cells.is_empty() {
        out.push_str("Nothing was measured.\n\n");
    }
    if let Some(words) = claims::words(&summary.checks) {
        out.push_str(&format!("{words}\n\n{}\n{}\n\n", claims::table(summary).markdown(), claims::MARKS));
    }
    if let Some(document) = &plan.document {
        out.push_str(&format!("## The document and we\n\n{}\n\n", escape(&document.citation)));
        for (what, text) in [("Measured there on: ", &document.setup), ("Here otherwise: ", &document.differences)] {
            for (index, paragraph) in paragraphs(text).enumerate() {
                out.push_str(&format!("{}{}\n\n", if index == 0 { what } else { "" }, escape(&paragraph)));
            }
        }
        for place in places(summary) {
            let table = tables::reported(summary, place);
            if !table.is_empty() {
                out.push_str(&format!("{}:\n\n{}\n", escape(&words::place(plan, place.0, place.1)), table.markdown()));
            }
        }
    }
    for place in places(summary) {
        out.push_str(&format!("## {}\n\n", escape(&words::place(plan, place.0, place.1))));
        out.push_str(&tables::results(summary, place, false).markdown());
        out.push('\n');
        let verdicts: Vec<String> =
            tables::verdicts(summary, place).into_iter().map(|(_, words)| format!("- {}\n", escape(&words))).collect();
        if !verdicts.is_empty() {
            out.push_str(&format!("{}\n", verdicts.concat()));
        }
    }
    if !figures.is_empty() {
        out.push_str("## Figures\n\n");
    }
    for figure in figures {
        out.push_str(&format!("![{}](figures/{}.svg)\n\n", figure.name.replace('-', " "), figure.name));
    }
    let (missing, invalid) = tables::left_out(summary);
    for (heading, list) in
        [("Not measured", missing), ("Runs that do not count", invalid), ("How", tables::method(summary))]
    {
        if !list.is_empty() {
            out.push_str(&format!("## {heading}\n\n"));
            out.extend(list.iter().map(|line| format!("- {}\n", escape(line))));
            out.push('\n');
        }
    }
    if !environment.facts.is_empty() {
        out.push_str(&format!("## Where\n\n{}", tables::environment(environment).markdown()));
    }
    format!("{}\n", out.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn in_a_repository() {
        insta::assert_snapshot!(markdown(&sample::summary(), &sample::environment()));
    }
}
