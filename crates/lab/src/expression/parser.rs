//! Pieces of text into a claim, by recursive descent.

use balanza_config::nearest;

use super::lexer::{Kind, Token, tokens};
use super::{Claim, Error, Expression, Measurement, Name, Number, Operator, Order, Unit};
use crate::metrics::{METRICS, Of};

/// Parentheses and signs inside each other: no claim that somebody reads has more, and the stack has an end.
const DEPTH_MAX: usize = 64;
/// Words, numbers and signs of one claim: sums as long as they like would be as deep a tree.
const PIECES_MAX: usize = 1000;

const FUNCTIONS: [&str; 3] = ["tie", "least", "greatest"];
const UNITS: [Unit; 3] = [Unit::Microseconds, Unit::Milliseconds, Unit::Seconds];

/// Reads a claim. The first mistake ends it, with its place.
pub fn parse(text: &str) -> Result<Expression, Error> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    if let Some(token) = parser.tokens.get(PIECES_MAX) {
        return Err(Error::new(token.place, format!("more than {PIECES_MAX} words, numbers and signs")));
    }
    if parser.peek().kind == Kind::End {
        return Err(Error::new(0, "there is no claim").hint("for example: rps(\"LC\") > rps(\"RR\")"));
    }
    let claim = parser.either()?.claim()?;
    let rest = parser.peek();
    if rest.kind != Kind::End {
        return Err(Error::new(rest.place, format!("{} is one too many", rest.kind.show()))
            .hint("claims are joined by and, or"));
    }
    Ok(Expression { claim })
}

/// What stands at a place: whether it is a claim or a number shows only when it is read.
enum Node {
    Claim(usize, Box<Claim>),
    Number(usize, Number),
}

impl Node {
    fn claim(self) -> Result<Claim, Error> {
        match self {
            Node::Claim(_, claim) => Ok(*claim),
            Node::Number(place, _) => Err(Error::new(place, "this is a number, not a claim")
                .hint("compare it: < <= > >= another, or ~ another within 5%")),
        }
    }

    fn number(self) -> Result<Number, Error> {
        match self {
            Node::Number(_, number) => Ok(number),
            Node::Claim(place, _) => Err(Error::new(place, "this is a claim, not a number")
                .hint("claims are joined by and, or; one compares only two numbers at a time")),
        }
    }
}

fn claim(place: usize, claim: Claim) -> Node {
    Node::Claim(place, Box::new(claim))
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.next]
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.next].clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek().kind, Kind::Sign(s) if s == sign);
        if found {
            self.advance();
        }
        found
    }

    fn word(&mut self, word: &str) -> bool {
        let found = matches!(&self.peek().kind, Kind::Word(w) if w == word);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, sign: &str, after: &str) -> Result<(), Error> {
        if self.sign(sign) {
            return Ok(());
        }
        let Token { kind, place } = self.peek();
        Err(Error::new(*place, format!("\"{sign}\" is missing {after}, there is {}", kind.show())))
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Parser) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == DEPTH_MAX {
            return Err(Error::new(self.peek().place, format!("more than {DEPTH_MAX} levels inside each other")));
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }

    fn either(&mut self) -> Result<Node, Error> {
        let place = self.peek().place;
        let mut left = self.both()?;
        while self.word("or") {
            left = claim(place, Claim::Or(Box::new(left.claim()?), Box::new(self.both()?.claim()?)));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Node, Error> {
        let place = self.peek().place;
        let mut left = self.negation()?;
        while self.word("and") {
            left = claim(place, Claim::And(Box::new(left.claim()?), Box::new(self.negation()?.claim()?)));
        }
        Ok(left)
    }

    fn negation(&mut self) -> Result<Node, Error> {
        let place = self.peek().place;
        if self.word("not") {
            let denied = self.deeper(|p| p.negation())?.claim()?;
            return Ok(claim(place, Claim::Not(Box::new(denied))));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Node, Error> {
        let place = self.peek().place;
        let left = self.sum()?;
        let order = match self.peek().kind {
            Kind::Sign("<") => Order::Less,
            Kind::Sign("<=") => Order::AtMost,
            Kind::Sign(">") => Order::More,
            Kind::Sign(">=") => Order::AtLeast,
            Kind::Sign("~") => return self.near(place, left.number()?),
            Kind::Sign("=") => {
                return Err(Error::new(self.peek().place, "measured numbers are never equal")
                    .hint("write a ~ b within 5%, or tie(a, b)"));
            }
            _ => return Ok(left),
        };
        self.advance();
        let (left, right) = (left.number()?, self.sum()?.number()?);
        Ok(claim(place, Claim::Compare { left, order, right }))
    }

    fn near(&mut self, place: usize, left: Number) -> Result<Node, Error> {
        self.advance();
        let there = self.peek().place;
        let right = self.sum()?.number()?;
        if right.constant() == Some(0.0) {
            return Err(Error::new(there, "nothing is within a part of 0").hint("write < and the greatest value"));
        }
        if !self.word("within") {
            return Err(Error::new(self.peek().place, "how near is missing").hint("for example: within 5%"));
        }
        let there = self.peek().place;
        let within = self.sum()?.number()?;
        if within.constant().is_none_or(|part| !(part > 0.0 && part < 1.0)) {
            return Err(Error::new(there, "must be a part between 0 and 100%").hint("for example: within 5%"));
        }
        Ok(claim(place, Claim::Near { left, right, within }))
    }

    fn sum(&mut self) -> Result<Node, Error> {
        let place = self.peek().place;
        let mut left = self.product()?;
        loop {
            let operator = match self.peek().kind {
                Kind::Sign("+") => Operator::Add,
                Kind::Sign("-") => Operator::Subtract,
                _ => return Ok(left),
            };
            self.advance();
            left = arithmetic(place, operator, left, self.product()?)?;
        }
    }

    fn product(&mut self) -> Result<Node, Error> {
        let place = self.peek().place;
        let mut left = self.signed()?;
        loop {
            let operator = match self.peek().kind {
                Kind::Sign("*") => Operator::Multiply,
                Kind::Sign("/") => Operator::Divide,
                _ => return Ok(left),
            };
            self.advance();
            left = arithmetic(place, operator, left, self.signed()?)?;
        }
    }

    fn signed(&mut self) -> Result<Node, Error> {
        let place = self.peek().place;
        if self.sign("-") {
            let number = self.deeper(|p| p.signed())?.number()?;
            return Ok(Node::Number(place, Number::Negative(Box::new(number))));
        }
        self.primary()
    }

    fn primary(&mut self) -> Result<Node, Error> {
        let Token { kind, place } = self.advance();
        match kind {
            Kind::Number(number) => {
                let unit = self.unit();
                Ok(Node::Number(place, Number::Constant(number * unit.size(), unit)))
            }
            Kind::Sign("(") => {
                let inside = self.deeper(|p| p.either())?;
                self.expect(")", "after what began with \"(\"")?;
                Ok(inside)
            }
            Kind::Word(word) if FUNCTIONS.contains(&word.as_str()) => self.deeper(|p| p.function(place, &word)),
            Kind::Word(word) => self.measured(place, word),
            Kind::Name(name) => Err(Error::new(place, format!("what is measured of \"{name}\" is missing"))
                .hint(format!("for example: rps(\"{name}\")"))),
            kind => Err(Error::new(place, format!("a number or a metric is missing, there is {}", kind.show()))),
        }
    }

    fn unit(&mut self) -> Unit {
        if self.sign("%") {
            return Unit::Percent;
        }
        UNITS.into_iter().find(|unit| self.word(unit.sign())).unwrap_or(Unit::None)
    }

    fn function(&mut self, place: usize, name: &str) -> Result<Node, Error> {
        self.expect("(", &format!("after {name}"))?;
        let left = self.sum()?.number()?;
        self.expect(",", &format!("between the two numbers of {name}"))?;
        let right = self.sum()?.number()?;
        self.expect(")", &format!("after the second number of {name}"))?;
        let operator = match name {
            "tie" => return Ok(claim(place, Claim::Tie(left, right))),
            "least" => Operator::Least,
            _ => Operator::Greatest,
        };
        Ok(Node::Number(place, Number::Arithmetic(operator, Box::new(left), Box::new(right))))
    }

    fn measured(&mut self, place: usize, word: String) -> Result<Node, Error> {
        let Some(metric) = METRICS.iter().find(|metric| metric.name == word) else {
            let known = METRICS.iter().map(|metric| metric.name);
            let hint = match nearest(&word, known.clone().chain(FUNCTIONS)) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("there are {}", known.collect::<Vec<_>>().join(", ")),
            };
            return Err(Error::new(place, format!("no metric \"{word}\"")).hint(hint));
        };
        let example = || format!("for example: {word}(\"RR\")");
        self.expect("(", &format!("after {word}")).map_err(|error| error.hint(example()))?;
        let algorithm = self.name("the name of an algorithm").map_err(|error| error.hint(example()))?;
        let metric_name = Name { text: word.clone(), place };
        let mut measurement =
            Measurement { metric: metric_name, algorithm, farm: None, load: None, system: None, server: None };
        while self.sign(",") {
            self.argument(&mut measurement)?;
        }
        self.expect(")", &format!("after what {word} is of"))?;
        match (metric.of, &measurement.server) {
            (Of::Server, None) => Err(Error::new(place, format!("{word} is measured of each server"))
                .hint(format!("for example: {word}(\"{}\", server=\"s1\")", measurement.algorithm.text))),
            (Of::Cell, Some(server)) => {
                Err(Error::new(server.place, format!("{word} is not measured of single servers")))
            }
            _ => Ok(Node::Number(place, Number::Measured(measurement))),
        }
    }

    fn argument(&mut self, measurement: &mut Measurement) -> Result<(), Error> {
        let Token { kind, place } = self.advance();
        let choice = "farm, load, system or server";
        let Kind::Word(key) = &kind else {
            return Err(Error::new(place, format!("{choice} is missing, there is {}", kind.show()))
                .hint("for example: load=\"250\""));
        };
        let value = match key.as_str() {
            "farm" => &mut measurement.farm,
            "load" => &mut measurement.load,
            "system" => &mut measurement.system,
            "server" => &mut measurement.server,
            _ => return Err(Error::new(place, format!("no \"{key}\" here")).hint(format!("there are {choice}"))),
        };
        if value.is_some() {
            return Err(Error::new(place, format!("{key} is given twice")));
        }
        self.expect("=", &format!("after {key}"))?;
        *value = Some(self.name(&format!("the name of a {key}"))?);
        Ok(())
    }

    fn name(&mut self, what: &str) -> Result<Name, Error> {
        let Token { kind, place } = self.advance();
        match kind {
            Kind::Name(text) => Ok(Name { text, place }),
            kind => Err(Error::new(place, format!("{what} in quotation marks is missing, there is {}", kind.show()))),
        }
    }
}

fn arithmetic(place: usize, operator: Operator, left: Node, right: Node) -> Result<Node, Error> {
    let (left, right) = (Box::new(left.number()?), Box::new(right.number()?));
    Ok(Node::Number(place, Number::Arithmetic(operator, left, right)))
}
