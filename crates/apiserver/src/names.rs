//! Validation of names, labels and other identifiers, with the messages of `k8s.io/apimachinery/pkg/util/validation`.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The validation rule of the names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Most kinds: `example.com`.
    Subdomain,
    /// Namespaces: `my-name`.
    Label,
    /// Services: a label that starts with a letter.
    Label1035,
    /// RBAC kinds: a valid path segment.
    PathSegment,
}

impl NameRule {
    /// Validates `name`; `prefix` if it is a `generateName`, to which a suffix is added.
    pub(crate) fn check(self, name: &str, prefix: bool) -> Result<(), String> {
        let masked;
        let name = if prefix && name.ends_with('-') && name.len() > 1 {
            masked = format!("{}a", &name[..name.len() - 1]);
            masked.as_str()
        } else {
            name
        };
        match self {
            Self::Subdomain => subdomain(name),
            Self::Label => label(name),
            Self::Label1035 => label_1035(name),
            Self::PathSegment => path_segment(name),
        }
    }
}

fn lower_alnum(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(lower_alnum)
        && bytes.last().copied().is_some_and(lower_alnum)
        && bytes.iter().all(|&b| lower_alnum(b) || b == b'-')
}

fn limit(text: &str, max: usize) -> Result<(), String> {
    if text.len() > max { Err(format!("must be no more than {max} bytes")) } else { Ok(()) }
}

pub(crate) fn label(text: &str) -> Result<(), String> {
    limit(text, 63)?;
    match () {
        () if is_label(text) => Ok(()),
        () if text.split('.').all(is_label) => Err("must not contain dots".into()),
        () => Err(LABEL.into()),
    }
}

fn label_1035(text: &str) -> Result<(), String> {
    limit(text, 63)?;
    if is_label(text) && text.as_bytes()[0].is_ascii_lowercase() { Ok(()) } else { Err(LABEL_1035.into()) }
}

pub(crate) fn subdomain(text: &str) -> Result<(), String> {
    limit(text, 253)?;
    if text.split('.').all(is_label) { Ok(()) } else { Err(SUBDOMAIN.into()) }
}

pub(crate) fn path_segment(text: &str) -> Result<(), String> {
    if text == "." || text == ".." {
        return Err(format!("may not be '{text}'"));
    }
    match text.chars().find(|c| "/%".contains(*c)) {
        Some(found) => Err(format!("may not contain '{found}'")),
        None => Ok(()),
    }
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|&b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// Validates a qualified name, such as a label key: `name` or `example.com/name`.
pub(crate) fn qualified(key: &str) -> Result<(), String> {
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) => {
            if prefix.is_empty() {
                return Err("prefix part must be non-empty".into());
            }
            subdomain(prefix).map_err(|why| format!("prefix part {why}"))?;
            name
        }
    };
    if name.is_empty() {
        return Err("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Err("name part must be no more than 63 bytes".into());
    }
    if is_word(name) { Ok(()) } else { Err(QUALIFIED.into()) }
}

pub(crate) fn label_value(value: &str) -> Result<(), String> {
    limit(value, 63)?;
    if value.is_empty() || is_word(value) { Ok(()) } else { Err(VALUE.into()) }
}
