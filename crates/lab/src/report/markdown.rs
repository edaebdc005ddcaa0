//! The report as Markdown, for a repository: the result, the checks, published results beside ours, a table for each load, the
//! files of the figures.

use super::charts::Figure;
use super::claims;
use super::events;
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
    let mut figures: Vec<Figure> = super::charts::overview(summary).into_iter().collect();
    figures.extend(super::charts::over_loads(summary));
    figures.extend(
        tables::main_place(summary).into_iter().flat_map(|place| super::distributions::of_place(summary, place)),
    );
    figures
}

pub(super) fn with_figures(summary: &Summary, environment: &Environment, figures: &[Figure]) -> String {
    let plan = &summary.plan;
    let mut out = format!("# {}\n\n", escape(&plan.title));
    if summary.cells.is_empty() {
        out.push_str("Nothing was measured.\n\n");
    }
    if let Some(place) = tables::main_place(summary) {
        let verdicts = tables::decisive_verdicts(summary, place);
        let verdicts: String = verdicts.iter().map(|words| format!("- {}\n", escape(words))).collect();
        if !verdicts.is_empty() {
            out.push_str(&format!("{}:\n\n{verdicts}\n", escape(&words::place(plan, place.0, place.1))));
        }
    }
    if let Some(words) = claims::words(&summary.checks) {
        out.push_str(&format!("{words}\n\n"));
    }
    let picture = |figure: &Figure| format!("![{}](figures/{}.svg)\n\n", figure.name.replace('-', " "), figure.name);
    let (first, figures): (Vec<&Figure>, Vec<&Figure>) =
        figures.iter().partition(|figure| figure.name.starts_with("result-"));
    out.extend(first.into_iter().map(picture));
    out.push_str("## The experiment\n\n");
    for paragraph in paragraphs(&plan.about) {
        out.push_str(&format!("{}\n\n", escape(&paragraph)));
    }
    if !summary.checks.is_empty() {
        out.push_str(&format!("## Checks\n\n{}\n{}\n\n", claims::table(summary).markdown(), claims::MARKS));
    }
    if let Some(document) = &plan.document {
        let texts = |text: &str| paragraphs(text).map(|text| format!("{}\n\n", escape(&text))).collect::<String>();
        out.push_str("## Published results and ours\n\n### Published results\n\n");
        out.push_str(&format!("{}\n\n{}", escape(&document.citation), texts(&document.setup)));
        out.push_str(&format!("### Ours\n\n{}", texts(&document.differences)));
        let tables = places(summary).into_iter().map(|place| (place, tables::reported(summary, place)));
        let tables: Vec<_> = tables.filter(|(_, table)| !table.is_empty()).collect();
        if !tables.is_empty() {
            out.push_str(&format!("{}\n\n", super::page::COMPARISON));
        }
        for (place, table) in tables {
            out.push_str(&format!("{}:\n\n{}\n", escape(&words::place(plan, place.0, place.1)), table.markdown()));
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
        let events = events::table(summary, place);
        if !events.is_empty() {
            out.push_str(&format!("Events:\n\n{}\n{}\n\n", events.markdown(), events::NOTE));
            let errors = tables::errors(summary, place);
            if !errors.is_empty() {
                out.push_str(&format!("Errors in all valid runs:\n\n{}\n", errors.markdown()));
            }
        }
    }
    if !figures.is_empty() {
        out.push_str("## Figures\n\n");
    }
    out.extend(figures.into_iter().map(picture));
    let (missing, invalid) = tables::left_out(summary);
    for (heading, list) in [("Not measured", missing), ("Excluded runs", invalid), ("Method", tables::method(summary))]
    {
        if !list.is_empty() {
            out.push_str(&format!("## {heading}\n\n"));
            out.extend(list.iter().map(|line| format!("- {}\n", escape(line))));
            out.push('\n');
        }
    }
    if !environment.facts.is_empty() {
        out.push_str(&format!("## Environment\n\n{}\n", tables::environment(environment).markdown()));
    }
    let details = claims::details(summary);
    if !details.is_empty() {
        out.push_str(&format!("## Appendix: how the checks were evaluated\n\n{}", details.markdown()));
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
