//! Pages cut at any place, and commands by their definitions.

use std::collections::HashMap;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;

/// A request with variables, for whose subrequests `{path?args}` stands.
#[derive(Default)]
pub struct Request {
    variables: HashMap<Vec<u8>, Vec<u8>>,
    time_format: Vec<u8>,
}

impl Host for Request {
    fn variable(&mut self, name: &[u8], out: &mut Vec<u8>) -> Result<bool, Undecided> {
        let value = self.variables.get(name);
        out.extend_from_slice(value.map_or(b"", |value| value));
        Ok(value.is_some())
    }

    fn path(&self) -> &[u8] {
        b"/dir/page.html"
    }

    fn set_time_format(&mut self, format: &[u8]) {
        self.time_format = format.to_vec();
    }

    fn report(&self, _: Arguments<'_>) {}
}

/// The whole output of a page that comes in these pieces, with so much room for each step.
fn output(pieces: &[&[u8]], room: usize) -> String {
    let mut request = Request::default();
    request.variables.insert(b"uri".to_vec(), b"/dir/page.html".to_vec());
    request.variables.insert(b"odd".to_vec(), b"<a b>".to_vec());
    let mut page = Page::new(40, false, Rc::default());
    let mut all = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let mut rest = *piece;
        loop {
            let mut out = vec![0; room];
            let (taken, made, done) = page.step(rest, index + 1 == pieces.len(), &mut out);
            rest = &rest[taken..];
            all.extend_from_slice(&out[..made]);
            if let Some(due) = page.take_due()
                && let Effect::Include(include) = page.perform(&due, &mut request)
            {
                all.push(b'{');
                all.extend_from_slice(&[&include.path[..], b"?", &include.args].concat());
                all.push(b'}');
            }
            if done {
                assert!(rest.is_empty());
                break;
            }
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn whole(page: &str) -> String {
    output(&[page.as_bytes()], 4096)
}

const ERROR: &str = "[an error occurred while processing the directive]";

#[test]
fn text_stays() {
    for text in ["", "<", "<!", "a<!--", "<!-- # -->", "<!--<!--", "a<<b", "<!-- x --><!---#"] {
        assert_eq!(whole(text), text);
    }
    // The end of the page is in the command.
    assert_eq!(whole("a<!--# echo var=\"uri\" --"), "a");
}

#[test]
fn values() {
    for (value, expected) in [
        ("a$uri.b", "a/dir/page.html.b"),
        ("${uri}x", "/dir/page.htmlx"),
        ("$nope|", "|"),
        (r"\$uri\\\'\q", r"$uri\'\q"),
        ("$ODD", "<a b>"),
        ("tail\\\\", "tail\\"),
    ] {
        let page = format!("<!--# set var=\"V\" value=\"{value}\" --><!--# echo var=\"v\" encoding=\"none\" -->");
        assert_eq!(whole(&page), expected, "{value}");
    }
    for wrong in ["a$", "${uri", "$-"] {
        assert_eq!(whole(&format!("<!--# set var=\"v\" value=\"{wrong}\" -->")), ERROR, "{wrong}");
    }
}

#[test]
fn echo_encodes() {
    assert_eq!(whole("<!--# echo var=\"odd\" -->"), "&lt;a b&gt;");
    // An encoding stays.
    assert_eq!(whole("<!--# echo var='odd' encoding='url' -->|<!--# echo var='odd' -->"), "%3Ca%20b%3E|%3Ca%20b%3E");
    assert_eq!(
        whole("<!--# echo var='no' -->|<!--# echo var='no' default='' -->|<!--# echo var='no' default='d' -->"),
        "(none)||d"
    );
}

#[test]
fn conditions() {
    for (expression, is_true) in [
        ("$uri", true),
        ("$nope", false),
        ("$uri = \\/dir/page.html", true),
        ("$uri != x", true),
        ("ABC=abc", true),
        ("abc = ABC", false),
        ("$uri = /p(a)ge/", true),
        ("$uri = /PAGE/", false),
        ("$uri != /^x/", true),
    ] {
        let page = format!("<!--# if expr=\"{expression}\" -->T<!--# else -->F<!--# endif -->");
        assert_eq!(whole(&page), if is_true { "T" } else { "F" }, "{expression}");
    }
    let page = "<!--# if expr='$nope' -->1<!--# elif expr='$uri' -->2<!--# elif expr='$uri' -->3<!--# else -->4<!--# endif -->5";
    assert_eq!(whole(page), "25");
    let page =
        "<!--# if expr='$uri = /(?<last>p.+)[.]/' --><!--# echo var='last' -->,<!--# echo var='1' --><!--# endif -->";
    assert_eq!(whole(page), "page,page");
    for wrong in [
        "<!--# else -->",
        "<!--# endif -->",
        "<!--# if expr='a > b' -->",
        "<!--# if expr='a = /x' -->",
        "<!--# if expr='a=/(/' -->",
    ] {
        assert_eq!(whole(wrong), ERROR, "{wrong}");
    }
}

#[test]
fn includes() {
    for (parameters, expected) in [
        ("virtual='/a?b=c'", "{/a?b=c}"),
        ("virtual='a'", "{/dir/a?}"),
        ("file='a'", "{/dir/a?}"),
        ("virtual='?x'", "{/dir/?x}"),
        ("virtual='$uri/%41%zz'", "{/dir/page.html/Azz?}"),
        ("virtual='/a/../b'", ERROR),
        ("virtual='/%2e%2E/b'", ERROR),
        ("virtual='$nope'", ERROR),
        ("virtual='/a%00'", ERROR),
        ("virtual='/a' file='b'", ERROR),
        ("virtual='/a' wait='maybe'", ERROR),
        ("file='a' wait='yes'", ERROR),
        ("virtual='/a' stub='none'", ERROR),
        ("virtual='/a' stub='none' set='x'", ERROR),
        ("", ERROR),
        ("virtual='/a' virtual='/a'", ERROR),
        ("what='/a'", ERROR),
    ] {
        assert_eq!(whole(&format!("<!--# include {parameters} -->")), expected, "{parameters}");
    }
}

#[test]
fn limits_of_commands() {
    let command = |name: usize, parameter: usize, value: usize| {
        whole(&format!("<!--#{} {}=\"{}\" -->", "e".repeat(name), "p".repeat(parameter), "v".repeat(value)))
    };
    // All fail, but not at the same place: only the reason would tell.
    assert_eq!(command(33, 1, 1), ERROR);
    let set =
        |length: usize| whole(&format!("<!--#set var='v' value='{}'--><!--# echo var='v' -->", "x".repeat(length)));
    assert_eq!(set(40), "x".repeat(40));
    assert_eq!(set(41), format!("{ERROR}(none)"));
    let many = |count: usize| whole(&format!("<!--# config {}-->.", "errmsg='e' ".repeat(count)));
    assert_eq!(many(1), ".");
    assert_eq!(many(2), format!("{ERROR}."));
    assert_eq!(many(1000), format!("{ERROR}."));
}

#[test]
fn blocks_are_bounded() {
    let text = "x".repeat(MOST_IN_BLOCKS / 2 + 1);
    let common = Rc::<Common>::default();
    common.begin_block(b"a");
    assert!(common.add_to_block(text.as_bytes()));
    common.begin_block(b"b");
    assert!(!common.add_to_block(text.as_bytes()));
}

/// Something that could be in a page.
fn part() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "<!--# echo var=\"uri\" -->",
        "<!--#echo var='odd' encoding='none'-->",
        "<!--# set var=\"a\" value=\"$uri.\\\"x\" -->",
        "<!--# echo var='a' -->",
        "<!--# if expr='$a' -->",
        "<!--# else -->",
        "<!--# endif -->",
        "<!--# block name='b' -->",
        "<!--# endblock -->",
        "<!--# include virtual='x?y' -->",
        "<!--# include virtual='/x' stub='b' -->",
        "<!--# config errmsg='E' -->",
        "<!--# wrong -->",
        "<!--# echo var=x -->",
        "<!--#",
        "-->",
        "text",
        "\n",
    ]);
    prop_oneof![fixed.prop_map(str::to_string), "[<!#x \"'=-]{0,6}"]
}

proptest! {
    #[test]
    fn any_pieces_make_the_same_page(
        parts in prop::collection::vec(part(), 0..12),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
        room in 1usize..40,
    ) {
        let page = parts.concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (page.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut begin = 0;
        for cut in cuts.into_iter().chain([page.len()]) {
            pieces.push(&page.as_bytes()[begin..cut]);
            begin = cut;
        }
        prop_assert_eq!(output(&pieces, room), whole(&page));
    }

    #[test]
    fn text_without_commands_stays(text in "[<!-]{0,5}[a-z<!>\\-]{0,40}") {
        prop_assert_eq!(whole(&text), text);
    }
}
