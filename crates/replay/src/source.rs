//! Files of lines and fields: plain or gzip, with the place of every field, so that an error can say where it is.
//!
//! What the fields mean is left to the readers of the formats.

use std::array;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use flate2::read::MultiGzDecoder;

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or is not whole.
    #[error("cannot read {file}")]
    Unreadable {
        /// Its path.
        file: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A field cannot be understood. Nothing of the file is used.
    #[error("{file}:{line}:{column}: {problem}")]
    Field {
        /// The path of the file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The character in the line at which the field begins, from 1.
        column: usize,
        /// What is wrong.
        problem: Problem,
    },
    /// There is nothing in the file to replay.
    #[error("{file} holds no {what}")]
    Empty {
        /// Its path.
        file: String,
        /// What it should hold.
        what: &'static str,
    },
}

/// What is wrong with a field or a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line has too few or too many fields.
    #[error("the line has {has} fields instead of {wants}")]
    Count {
        /// How many it has.
        has: usize,
        /// How many it should have.
        wants: usize,
    },
    /// A column that is needed is not in the header.
    #[error("the header names no column `{0}`")]
    NoColumn(&'static str),
    /// A field that is not what its column asks for.
    #[error("{name} is `{text}`, which is not {wants}")]
    Value {
        /// The column.
        name: &'static str,
        /// What stands there.
        text: String,
        /// What should.
        wants: &'static str,
    },
    /// A quoted field: none of the formats has any.
    #[error("quoted fields are not supported")]
    Quoted,
}

/// The text of a file, with the name by which errors call it.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// A text that was read already.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Reads a file; one that begins like gzip is unpacked.
    ///
    /// Bytes that are no UTF-8 become replacement characters: comments of old logs are full of them, and numbers cannot be.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let bytes = fs::read(path).and_then(|bytes| {
            let mut plain = Vec::new();
            if !bytes.starts_with(&[0x1f, 0x8b]) {
                return Ok(bytes);
            }
            MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map(|_| plain)
        });
        match bytes {
            Ok(bytes) => Ok(Self { name, text: String::from_utf8_lossy(&bytes).into_owned() }),
            Err(cause) => Err(Error::Unreadable { file: name, cause }),
        }
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn empty(&self, what: &'static str) -> Error {
        Error::Empty { file: self.name.clone(), what }
    }

    /// The lines with something in them.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let lines = self.text.lines().enumerate();
        lines.filter(|(_, text)| !text.trim().is_empty()).map(|(at, text)| Line {
            source: self,
            number: at + 1,
            text,
        })
    }

    /// The rows of a table with a header, with the fields of the wanted columns in the order in which they are wanted. A column
    /// that may be missing holds nothing then.
    pub(crate) fn table<'s, const N: usize>(
        &'s self,
        wanted: [&'static str; N],
        may_be_missing: &[&str],
    ) -> Result<impl Iterator<Item = Result<[Field<'s>; N], Error>>, Error> {
        let mut lines = self.lines();
        let header = lines.next().ok_or_else(|| self.empty("header"))?;
        let names = header.columns()?;
        let places = wanted.map(|name| names.iter().position(|(_, text)| *text == name));
        let missing =
            |(name, place): &(&&str, &Option<usize>)| place.is_none() && !may_be_missing.contains(*name);
        if let Some((name, _)) = wanted.iter().zip(&places).find(missing) {
            return Err(header.error(1, Problem::NoColumn(name)));
        }
        Ok(lines.map(move |line| {
            let fields = line.columns()?;
            if fields.len() != names.len() {
                return Err(line.error(1, Problem::Count { has: fields.len(), wants: names.len() }));
            }
            Ok(array::from_fn(|at| {
                let (column, text) = places[at].map_or((1, ""), |place| fields[place]);
                Field { line, column, name: wanted[at], text }
            }))
        }))
    }
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'s> {
    source: &'s Source,
    number: usize,
    pub(crate) text: &'s str,
}

impl<'s> Line<'s> {
    /// What is between white space, by name.
    pub(crate) fn words<const N: usize>(self, names: [&'static str; N]) -> Result<[Field<'s>; N], Error> {
        let words: Vec<_> = self.text.split_whitespace().collect();
        if words.len() != N {
            return Err(self.error(1, Problem::Count { has: words.len(), wants: N }));
        }
        Ok(array::from_fn(|at| {
            let column = self.column(words[at]);
            Field { line: self, column, name: names[at], text: words[at] }
        }))
    }

    /// What is between commas, with the character at which it begins.
    fn columns(self) -> Result<Vec<(usize, &'s str)>, Error> {
        if let Some(quote) = self.text.find('"') {
            return Err(self.error(self.column(&self.text[quote..]), Problem::Quoted));
        }
        Ok(self.text.split(',').map(|text| (self.column(text), text.trim())).collect())
    }

    /// The character at which a part of the line begins, from 1.
    fn column(self, part: &str) -> usize {
        let bytes = part.as_ptr() as usize - self.text.as_ptr() as usize;
        self.text[..bytes].chars().count() + 1
    }

    fn error(self, column: usize, problem: Problem) -> Error {
        Error::Field { file: self.source.name.clone(), line: self.number, column, problem }
    }
}

/// One field of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'s> {
    line: Line<'s>,
    column: usize,
    name: &'static str,
    pub(crate) text: &'s str,
}

impl Field<'_> {
    /// A whole number; without a sign when the type has none.
    pub(crate) fn number<T: FromStr>(&self) -> Result<T, Error> {
        self.text.parse().map_err(|_| self.refuse("a whole number that can be counted with"))
    }

    /// Seconds, perhaps with a fraction, in microseconds.
    pub(crate) fn seconds(&self) -> Result<i64, Error> {
        micros(self.text).ok_or_else(|| self.refuse("a number of seconds"))
    }

    /// Says that the field is not what is wanted.
    pub(crate) fn refuse(&self, wants: &'static str) -> Error {
        let problem = Problem::Value { name: self.name, text: self.text.to_owned(), wants };
        self.line.error(self.column, problem)
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Decimal seconds in microseconds; what is beyond them is cut off.
fn micros(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    let micros = whole.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)?;
    Some(if negative { -micros } else { micros })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_to_the_microsecond_and_nothing_else_is() {
        let cases = [
            ("0", Some(0)),
            ("66.0", Some(66_000_000)),
            ("1.5", Some(1_500_000)),
            ("0.1234567", Some(123_456)),
            ("-1", Some(-1_000_000)),
            ("", None),
            (".5", None),
            ("1e3", None),
            ("1.2.3", None),
            ("99999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(micros(text), expected, "{text}");
        }
    }
}
