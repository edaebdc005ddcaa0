//! A report: one HTML file with headings, paragraphs, tables and pictures, and nothing to fetch.

use std::fmt::Write;

use crate::text::escape;
use crate::theme;

/// A report that is being written, from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
    /// Whether figures stand in a row that is still open.
    figures: bool,
}

impl Page {
    /// A page with this title as its first heading.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_string(), body: format!("<h1>{}</h1>\n", escape(title)), figures: false }
    }

    fn add(mut self, element: &str) -> Self {
        if self.figures {
            self.body.push_str("</div>\n");
            self.figures = false;
        }
        self.body.push_str(element);
        self
    }

    /// A heading.
    #[must_use]
    pub fn heading(self, text: &str) -> Self {
        self.add(&format!("<h2>{}</h2>\n", escape(text)))
    }

    /// A heading below a [`Page::heading`].
    #[must_use]
    pub fn subheading(self, text: &str) -> Self {
        self.add(&format!("<h3>{}</h3>\n", escape(text)))
    }

    /// A paragraph.
    #[must_use]
    pub fn paragraph(self, text: &str) -> Self {
        self.add(&format!("<p>{}</p>\n", escape(text)))
    }

    /// A paragraph of less weight: methods, footnotes.
    #[must_use]
    pub fn note(self, text: &str) -> Self {
        self.add(&format!("<p class=\"quiet\">{}</p>\n", escape(text)))
    }

    /// Text as it is: a scenario, a command.
    #[must_use]
    pub fn preformatted(self, text: &str) -> Self {
        let lines: Vec<String> = text.trim_end().lines().map(escape).collect();
        self.add(&format!("<pre>{}</pre>\n", lines.join("\n")))
    }

    /// Sentences, one below the other.
    #[must_use]
    pub fn list<T: AsRef<str>>(self, items: impl IntoIterator<Item = T>) -> Self {
        let items: String = items.into_iter().map(|item| format!("<li>{}</li>\n", escape(item.as_ref()))).collect();
        if items.is_empty() { self } else { self.add(&format!("<ul>\n{items}</ul>\n")) }
    }

    /// A part that the reader opens and closes by its summary; `open` is how it is at first. On paper it is open.
    #[must_use]
    pub fn details(self, summary: &str, open: bool, content: impl FnOnce(Self) -> Self) -> Self {
        let open = if open { " open" } else { "" };
        let page = self.add(&format!("<details{open}>\n<summary>{}</summary>\n", escape(summary)));
        content(page).add("</details>\n")
    }

    /// A table; on a narrow screen it scrolls by itself.
    #[must_use]
    pub fn table(self, table: &Table) -> Self {
        self.add(&table.html())
    }

    /// A picture from `svg()` with what is to be said about it. Figures that follow each other stand side by side where
    /// there is room.
    #[must_use]
    pub fn figure(mut self, svg: &str, caption: &str) -> Self {
        if !self.figures {
            self.body.push_str("<div class=\"figures\">\n");
            self.figures = true;
        }
        let caption = match caption {
            "" => String::new(),
            caption => format!("<figcaption>{}</figcaption>\n", escape(caption)),
        };
        let _ = write!(self.body, "<figure>\n{svg}{caption}</figure>\n");
        self
    }

    /// The file.
    pub fn html(self) -> String {
        let Self { title, body, .. } = self.add("");
        let (title, page, plots) = (escape(&title), theme::page_css(), theme::css());
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
             <style>\n{page}{plots}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
        )
    }
}

/// A cell of a [`Table`]. Its text may have several lines.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    class: &'static str,
}

impl Cell {
    /// Words that may be several lines.
    pub fn prose(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: "prose" }
    }

    /// Words, to the left.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: "" }
    }

    /// A number as it is written, to the right.
    pub fn number(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: "number" }
    }

    /// Words about something better than what it is compared with. The words have to say so, too.
    pub fn good(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: "good" }
    }

    /// Words about something worse than what it is compared with. The words have to say so, too.
    pub fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: "bad" }
    }

    fn html(&self, tag: &str) -> String {
        let class = if self.class.is_empty() { String::new() } else { format!(" class=\"{}\"", self.class) };
        let lines: Vec<String> = self.text.split('\n').map(escape).collect();
        format!("<{tag}{class}>{}</{tag}>", lines.join("<br/>"))
    }
}

/// Rows of cells below a heading.
#[derive(Clone, Debug)]
pub struct Table {
    heading: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows. A heading stands as its column does: [`Cell::number`] to the right.
    pub fn new(heading: impl IntoIterator<Item = Cell>) -> Self {
        Self { heading: heading.into_iter().collect(), rows: Vec::new() }
    }

    /// One row more.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn html(&self) -> String {
        let row = |cells: &[Cell], tag: &str| {
            let cells: String = cells.iter().map(|cell| cell.html(tag)).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(|cells| row(cells, "td")).collect();
        format!(
            "<div class=\"scroll\">\n<table>\n<thead>\n{}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n</div>\n",
            row(&self.heading, "th")
        )
    }
}
