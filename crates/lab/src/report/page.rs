//! The page: one file with everything that people read.

use balanza_plot::Page;

use super::charts::{Figure, over_loads};
use super::claims;
use super::distributions::of_place;
use super::tables::{self, places};
use super::words::{self, paragraphs};
use crate::environment::Environment;
use crate::summary::Summary;

/// So many verdicts are shown at once; the others open.
const VERDICTS: usize = 8;

/// The report as one HTML file that needs nothing else.
pub fn html(summary: &Summary, environment: &Environment) -> String {
    let plan = &summary.plan;
    let mut page = Page::new(&plan.title);
    for paragraph in paragraphs(&plan.about) {
        page = page.paragraph(&paragraph);
    }
    page = verdict(page, summary);
    let table = claims::table(summary);
    if !table.is_empty() {
        page = page.heading("Claims").table(&table.html()).note(claims::MARKS);
    }
    page = document(page, summary);
    let figures = over_loads(summary);
    if !figures.is_empty() {
        page = show(page.heading("By load"), figures);
    }
    page = page.heading("Measurements");
    let first = tables::main_place(summary);
    let all = places(summary);
    for &place in &all {
        let title = words::place(plan, place.0, place.1);
        page = page.details(&title, all.len() == 1 || Some(place) == first, |page| measurements(page, summary, place));
    }
    how(page, summary, environment).html()
}

fn show(page: Page, figures: Vec<Figure>) -> Page {
    figures.into_iter().fold(page, |page, figure| page.figure(&figure.svg, &figure.caption))
}

fn verdict(page: Page, summary: &Summary) -> Page {
    let first = tables::main_place(summary);
    let of = |place: (&str, &str)| -> Vec<String> {
        tables::verdicts(summary, place).into_iter().filter(|(first, _)| *first).map(|(_, words)| words).collect()
    };
    let mut page = page.heading("What came out");
    if summary.cells.is_empty() {
        return page.paragraph("Nothing was measured.");
    }
    if let Some(words) = claims::words(&summary.checks) {
        page = page.paragraph(&words);
    }
    let mut others: Vec<(String, Vec<String>)> = Vec::new();
    let mut shown = 0;
    // The place that matters most comes first, the others in their order.
    for place in first.into_iter().chain(places(summary).into_iter().filter(|place| Some(*place) != first)) {
        let (title, verdicts) = (words::place(&summary.plan, place.0, place.1), of(place));
        if verdicts.is_empty() {
            continue;
        }
        shown += verdicts.len();
        if Some(place) == first || shown <= VERDICTS {
            page = page.subheading(&capitalised(&title)).list(&verdicts);
        } else {
            others.push((title, verdicts));
        }
    }
    if others.is_empty() {
        return page;
    }
    page.details("The other loads", false, |page| {
        others.iter().fold(page, |page, (title, verdicts)| page.subheading(&capitalised(title)).list(verdicts))
    })
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The document's own tables beside our measurements.
fn document(mut page: Page, summary: &Summary) -> Page {
    let Some(document) = &summary.plan.document else { return page };
    page = page.heading("The document and we").paragraph(&document.citation);
    for (what, text) in [("Measured there on: ", &document.setup), ("Here otherwise: ", &document.differences)] {
        for (index, paragraph) in paragraphs(text).enumerate() {
            page = page.note(&if index == 0 { format!("{what}{paragraph}") } else { paragraph });
        }
    }
    let tables: Vec<_> = places(summary)
        .into_iter()
        .map(|place| (place, tables::reported(summary, place)))
        .filter(|(_, table)| !table.is_empty())
        .collect();
    if !tables.is_empty() {
        page = page.note(
            "The document's numbers with the deviation it gives, if any; ours with their 95% intervals; × is ours over the \
             document's. Absolute figures belong to their machines: what can be repeated is the order and the ratios.",
        );
    }
    for (place, table) in tables {
        page = page.subheading(&capitalised(&words::place(&summary.plan, place.0, place.1))).table(&table.html());
    }
    page
}

fn measurements(mut page: Page, summary: &Summary, place: (&str, &str)) -> Page {
    page = page.table(&tables::results(summary, place, true).html());
    let verdicts: Vec<String> = tables::verdicts(summary, place).into_iter().map(|(_, words)| words).collect();
    page = page.list(&verdicts);
    page = show(page, of_place(summary, place));
    let processes = tables::processes(summary, place);
    if processes.has_numbers() {
        page = page.subheading("Processes and servers").table(&processes.html());
    }
    let errors = tables::errors(summary, place);
    if !errors.is_empty() {
        page = page.subheading("Errors, of all runs that count").table(&errors.html());
    }
    page
}

/// How it was measured, where, and what is missing.
fn how(mut page: Page, summary: &Summary, environment: &Environment) -> Page {
    let (missing, invalid) = tables::left_out(summary);
    for (heading, list) in [("Not measured", missing), ("Runs that do not count", invalid)] {
        if list.len() > VERDICTS {
            page = page.heading(heading).details(&format!("{} of them", list.len()), false, |page| page.list(&list));
        } else if !list.is_empty() {
            page = page.heading(heading).list(&list);
        }
    }
    page = page.heading("How").list(tables::method(summary));
    page = page.note(
        "The configuration of each system is in the results' directory configurations, what each run measured in runs, the \
         plan in plan.toml.",
    );
    if environment.facts.is_empty() {
        return page;
    }
    page.heading("Where").table(&tables::environment(environment).html())
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
        for part in
            ["What came out", "Claims", "The document and we", "By load", "Not measured", "Runs that do not count"]
        {
            assert!(html.contains(&format!("<h2>{part}</h2>")), "{part}");
        }
        assert!(html.contains("<details open>\n<summary>250 users</summary>"));
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
