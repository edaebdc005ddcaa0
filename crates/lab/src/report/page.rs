//! The page: one file with everything that people read.

use balanza_plot::{Page, capitalised};

use super::charts::{Figure, over_loads, overview};
use super::claims;
use super::distributions::of_place;
use super::events;
use super::tables::{self, places};
use super::words::{self, paragraphs};
use crate::environment::Environment;
use crate::summary::Summary;

/// So many verdicts and notes are shown at once; more open on demand.
const VERDICTS: usize = 8;

/// The report as one HTML file that needs nothing else.
pub fn html(summary: &Summary, environment: &Environment) -> String {
    let plan = &summary.plan;
    let mut page = verdict(Page::new(&plan.title), summary);
    if let Some(figure) = overview(summary) {
        page = show(page, vec![figure]);
    }
    page = other_verdicts(page, summary).heading("The experiment");
    for paragraph in paragraphs(&plan.about) {
        page = page.paragraph(&paragraph);
    }
    let table = claims::table(summary);
    if !table.is_empty() {
        page = page.heading("Checks").table(&table.html()).note(claims::MARKS);
    }
    page = document(page, summary);
    let figures = over_loads(summary);
    if !figures.is_empty() {
        page = show(page.heading("Results by load"), figures);
    }
    page = page.heading("Measurements");
    let first = tables::main_place(summary);
    let all = places(summary);
    for &place in &all {
        let title = capitalised(&words::place(plan, place.0, place.1));
        page = page.details(&title, all.len() == 1 || Some(place) == first, |page| measurements(page, summary, place));
    }
    how(page, summary, environment).html()
}

fn show(page: Page, figures: Vec<Figure>) -> Page {
    figures.into_iter().fold(page, |page, figure| page.figure(&figure.svg, &figure.caption))
}

/// The result in sentences: the verdicts where most was measured, and the checks.
fn verdict(mut page: Page, summary: &Summary) -> Page {
    if summary.cells.is_empty() {
        return page.paragraph("Nothing was measured.");
    }
    if let Some(place) = tables::main_place(summary) {
        let verdicts = tables::decisive_verdicts(summary, place);
        if !verdicts.is_empty() {
            let title = capitalised(&words::place(&summary.plan, place.0, place.1));
            page = page.subheading(&format!("Result: {title}")).list(verdicts);
        }
    }
    claims::words(&summary.checks).into_iter().fold(page, |page, words| page.paragraph(&words))
}

/// The verdicts of the other farms and loads, in their order.
fn other_verdicts(page: Page, summary: &Summary) -> Page {
    let first = tables::main_place(summary);
    let others: Vec<(String, Vec<String>)> = places(summary)
        .into_iter()
        .filter(|place| Some(*place) != first)
        .map(|place| {
            (capitalised(&words::place(&summary.plan, place.0, place.1)), tables::decisive_verdicts(summary, place))
        })
        .filter(|(_, verdicts)| !verdicts.is_empty())
        .collect();
    let shown: usize = others.iter().map(|(_, verdicts)| verdicts.len()).sum();
    if others.is_empty() {
        return page;
    }
    page.details("Results of the other loads", shown <= VERDICTS, |page| {
        others.iter().fold(page, |page, (title, verdicts)| page.subheading(title).list(verdicts))
    })
}

/// The published results beside ours.
fn document(mut page: Page, summary: &Summary) -> Page {
    let Some(document) = &summary.plan.document else { return page };
    page = page.heading("Published results and ours").subheading("Published results").paragraph(&document.citation);
    page = paragraphs(&document.setup).fold(page, |page, paragraph| page.paragraph(&paragraph));
    page = page.subheading("Ours");
    page = paragraphs(&document.differences).fold(page, |page, paragraph| page.paragraph(&paragraph));
    let tables: Vec<_> = places(summary)
        .into_iter()
        .map(|place| (place, tables::reported(summary, place)))
        .filter(|(_, table)| !table.is_empty())
        .collect();
    if !tables.is_empty() {
        page = page.note(COMPARISON);
    }
    for (place, table) in tables {
        page = page.subheading(&capitalised(&words::place(&summary.plan, place.0, place.1))).table(&table.html());
    }
    page
}

/// How to read the tables of published results and ours.
pub(super) const COMPARISON: &str = "Published: the standard deviation is in parentheses, if it was published. Ours: ± is half \
                                     the width of the 95% confidence interval; × is our mean divided by the published one. \
                                     Absolute numbers depend on the machine; compare the order and the ratios.";

fn measurements(mut page: Page, summary: &Summary, place: (&str, &str)) -> Page {
    page = page.table(&tables::results(summary, place, true).html());
    let verdicts: Vec<String> = tables::verdicts(summary, place).into_iter().map(|(_, words)| words).collect();
    if !verdicts.is_empty() {
        page = page.details("All comparisons", false, |page| page.list(&verdicts));
    }
    page = show(page, of_place(summary, place));
    let processes = tables::processes(summary, place);
    if processes.has_numbers() {
        page = page.subheading("Processes and servers").table(&processes.html());
    }
    let events = events::table(summary, place);
    if !events.is_empty() {
        page = page.subheading("Events").table(&events.html()).note(events::NOTE);
    }
    let errors = tables::errors(summary, place);
    if !errors.is_empty() {
        page = page.subheading("Errors in all valid runs").table(&errors.html());
    }
    page
}

/// How it was measured, where, and what is missing.
fn how(mut page: Page, summary: &Summary, environment: &Environment) -> Page {
    let (missing, invalid) = tables::left_out(summary);
    for (heading, list) in [("Not measured", missing), ("Excluded runs", invalid)] {
        if list.len() > VERDICTS {
            page = page.heading(heading).details(&format!("{} of them", list.len()), false, |page| page.list(&list));
        } else if !list.is_empty() {
            page = page.heading(heading).list(&list);
        }
    }
    page = page.heading("Method").list(tables::method(summary));
    page = page.note(
        "The directory of the results has the configuration of each system in configurations/, the measurements of each run in \
         runs/, and the plan in plan.toml.",
    );
    if !environment.facts.is_empty() {
        page = page.heading("Environment").table(&tables::environment(environment).html());
    }
    let details = claims::details(summary);
    if details.is_empty() {
        page
    } else {
        page.heading("Appendix: how the checks were evaluated").table(&details.html())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Every element that begins ends, in order.
    fn assert_balanced(html: &str) {
        let mut open: Vec<&str> = Vec::new();
        for tag in html.split('<').skip(1) {
            let tag = &tag[..tag.find('>').expect("a tag ends")];
            let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap_or("");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') && !["!DOCTYPE", "meta"].contains(&name) {
                open.push(name);
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn the_page_is_whole_and_needs_nothing() {
        let html = html(&sample::summary(), &sample::environment());
        assert_balanced(&html);
        let external = html.replace("http://www.w3.org/2000/svg", "");
        for reference in ["http:", "https:", "url(", "src=", "href=", "@import", "NaN", "inf%"] {
            assert!(!external.contains(reference), "{reference}");
        }
        let parts = [
            "The experiment",
            "Checks",
            "Published results and ours",
            "Results by load",
            "Not measured",
            "Excluded runs",
            "Method",
            "Appendix: how the checks were evaluated",
        ];
        let places = parts.map(|part| html.find(&format!("<h2>{part}</h2>")).unwrap_or_else(|| panic!("no {part}")));
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        assert!(html.contains("<details open>\n<summary>250 users</summary>"));
    }

    #[test]
    fn the_verdict_comes_first_then_its_picture() {
        let html = html(&sample::summary(), &sample::environment());
        let parts =
            ["</h1>", "least_conn is best (187 requests/s)", "3 of 5 checks", "<svg", "<h2>The experiment</h2>"];
        let places = parts.map(|part| html.find(part).unwrap_or_else(|| panic!("no {part}")));
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
    }

    #[test]
    fn expressions_of_checks_are_in_the_appendix_only() {
        let html = html(&sample::summary(), &sample::environment());
        let (body, appendix) = html.split_once("Appendix: ").expect("an appendix");
        assert!(!body.contains("rps("), "an expression is outside of the appendix");
        assert!(appendix.contains("rps(") && body.contains("expected to fail: confirmed"));
    }

    #[test]
    fn names_are_no_markup() {
        let mut summary = sample::summary();
        let name = "<script>alert(1)</script>".to_string();
        summary.plan.title = name.clone();
        summary.plan.checks[0].says = name.clone();
        for cell in &mut summary.cells {
            cell.cell.algorithm = name.clone();
            cell.shares[0].0 = name.clone();
        }
        let html = html(&summary, &sample::environment());
        assert!(!html.contains("<script"));
        assert_balanced(&html);
    }

    #[test]
    fn nothing_measured_is_said() {
        let mut summary = sample::summary();
        (summary.cells, summary.rankings, summary.checks) = (Vec::new(), Vec::new(), Vec::new());
        let html = html(&summary, &Environment::default());
        assert!(html.contains("Nothing was measured."));
        assert_balanced(&html);
    }
}
