//! Label selectors, in the text form of query parameters and in the object form (`metav1.LabelSelector`).

use serde_json::Value;

use crate::object;

/// A conjunction of requirements. An empty selector matches every object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    Greater(i64),
    Less(i64),
}

impl Selector {
    /// Parses `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`. The error is a message for the client.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Parser { tokens: tokens(text), at: 0 }.requirements().map(Self)
    }

    /// Reads a `metav1.LabelSelector`. A requirement with an unknown operator matches nothing.
    pub(crate) fn from_value(value: &Value) -> Self {
        let mut all = Vec::new();
        for (key, wanted) in object::map(value, &["matchLabels"]).into_iter().flatten() {
            let wanted = wanted.as_str().unwrap_or_default().to_owned();
            all.push(Requirement { key: key.clone(), operator: Operator::In(vec![wanted]) });
        }
        for expression in object::items(value, &["matchExpressions"]) {
            let values: Vec<String> = object::texts(expression, &["values"]).map(String::from).collect();
            let operator = match object::text(expression, &["operator"]) {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => Operator::In(Vec::new()),
            };
            all.push(Requirement { key: object::text(expression, &["key"]).into(), operator });
        }
        Self(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels satisfy every requirement; `label` returns the value of a key.
    pub(crate) fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| {
            let value = label(&requirement.key);
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
                Operator::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::Greater(than) => value.and_then(|v| v.parse().ok()).is_some_and(|v: i64| v > *than),
                Operator::Less(than) => value.and_then(|v| v.parse().ok()).is_some_and(|v: i64| v < *than),
            }
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    'next: while !rest.is_empty() {
        if let Some(trimmed) = rest.strip_prefix(char::is_whitespace) {
            rest = trimmed;
            continue;
        }
        for sign in ["==", "!=", "=", "!", ",", "(", ")", ">", "<"] {
            if let Some(after) = rest.strip_prefix(sign) {
                tokens.push(Token::Sign(if sign == "==" { "=" } else { sign }));
                rest = after;
                continue 'next;
            }
        }
        let end = rest.find(|c: char| c.is_whitespace() || "=!,()<>".contains(c)).unwrap_or(rest.len());
        tokens.push(Token::Word(rest[..end].into()));
        rest = &rest[end..];
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn eat(&mut self, sign: &'static str) -> bool {
        let found = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let word = word.clone();
        self.at += 1;
        Some(word)
    }

    fn found(&self) -> String {
        match self.peek() {
            Some(Token::Word(word)) => format!("'{word}'"),
            Some(Token::Sign(sign)) => format!("'{sign}'"),
            None => "''".into(),
        }
    }

    fn requirements(mut self) -> Result<Vec<Requirement>, String> {
        let mut all = Vec::new();
        while self.peek().is_some() {
            if !matches!(self.peek(), Some(Token::Word(_) | Token::Sign("!"))) {
                return Err(format!("found {}, expected: !, identifier, or 'end of string'", self.found()));
            }
            all.push(self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
            if self.peek().is_none() {
                break;
            }
            if !self.eat(",") {
                return Err(format!("found {}, expected: ',' or 'end of string'", self.found()));
            }
            if !matches!(self.peek(), Some(Token::Word(_) | Token::Sign("!"))) {
                return Err(format!("found {}, expected: identifier after ','", self.found()));
            }
        }
        Ok(all)
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.eat("!");
        let Some(key) = self.word() else {
            return Err(format!("found {}, expected: !, identifier, or 'end of string'", self.found()));
        };
        if let Err(why) = crate::names::qualified(&key) {
            return Err(format!("key: Invalid value: \"{key}\": {why}"));
        }
        if absent {
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        let operator = match self.peek().cloned() {
            None | Some(Token::Sign(",")) => Operator::Exists,
            Some(Token::Sign("=")) => {
                self.at += 1;
                Operator::In(vec![self.value(&key)?])
            }
            Some(Token::Sign("!=")) => {
                self.at += 1;
                Operator::NotIn(vec![self.value(&key)?])
            }
            Some(Token::Sign(sign @ (">" | "<"))) => {
                self.at += 1;
                let word = self.value(&key)?;
                let Ok(bound) = word.parse() else {
                    return Err(format!(
                        "values[0][{key}]: Invalid value: \"{word}\": for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                };
                if sign == ">" { Operator::Greater(bound) } else { Operator::Less(bound) }
            }
            Some(Token::Word(word)) if word == "in" || word == "notin" => {
                self.at += 1;
                let values = self.values(&key)?;
                if word == "in" { Operator::In(values) } else { Operator::NotIn(values) }
            }
            Some(_) => {
                return Err(format!("found {}, expected: in, notin, =, ==, !=, gt, lt", self.found()));
            }
        };
        Ok(Requirement { key, operator })
    }

    /// Parses one value; an absent value is the empty string, as in `a=,b=c`.
    fn value(&mut self, key: &str) -> Result<String, String> {
        let value = self.word().unwrap_or_default();
        match crate::names::label_value(&value) {
            Ok(()) => Ok(value),
            Err(why) => Err(format!("values[0][{key}]: Invalid value: \"{value}\": {why}")),
        }
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        if !self.eat("(") {
            return Err(format!("found {} expected: '('", self.found()));
        }
        let mut values = vec![self.value(key)?];
        while self.eat(",") {
            values.push(self.value(key)?);
        }
        if self.eat(")") { Ok(values) } else { Err(format!("found {}, expected: ',' or ')'", self.found())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_matches_as_in_kubernetes() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "example.com/size" => Some("7"),
            "empty" => Some(""),
            _ => None,
        };
        for (text, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=web", true),
            ("app==web,other!=x", true),
            ("app!=web", false),
            ("app in (db, web)", true),
            ("app notin (db, web)", false),
            ("other notin (db)", true),
            ("example.com/size>6", true),
            ("example.com/size<7", false),
            ("empty=", true),
            ("empty in (,x)", true),
        ] {
            assert_eq!(Selector::parse(text).unwrap().matches(labels), expected, "{text}");
        }
    }

    #[test]
    fn a_malformed_selector_is_rejected() {
        for text in ["=a", "a in b", "a in (b", "a,", "a b", "a=b=c", "-a=b", "a=b@c", "a>x", "(", "!"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }
}
