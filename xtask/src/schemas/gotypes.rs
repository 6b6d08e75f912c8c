//! Reads facts of Go struct fields that `OpenAPI` lacks: the Go type, `omitempty` and `omitzero`.
//!
//! The parser handles only the regular style of struct declarations in Kubernetes' API types.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use regex::Regex;

/// One serialised field.
#[derive(Clone)]
pub(super) struct Field {
    /// The Go type, qualified as in Go's error messages: `*int32`, `[]v1.Container`.
    pub(super) kind: String,
    pub(super) omit_empty: bool,
    /// The field is also omitted when it is a struct whose fields are all empty.
    pub(super) omit_zero: bool,
}

struct Struct {
    fields: BTreeMap<String, Field>,
    /// Inlined structs.
    inlined: Vec<String>,
}

/// Go structs, by the names of their `OpenAPI` components.
pub(super) struct GoTypes {
    structs: BTreeMap<String, Struct>,
}

impl GoTypes {
    /// Reads all files of `packages` below `includes`.
    pub(super) fn read(
        includes: &Path,
        packages: impl Iterator<Item = &'static str>,
    ) -> anyhow::Result<Self> {
        let mut structs = BTreeMap::new();
        for package in packages {
            let directory = includes.join(package);
            for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
                let path = entry?.path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let source = path.extension().is_some_and(|extension| extension == "go")
                    && !name.contains("_test")
                    && !name.starts_with("zz_")
                    && !name.starts_with("generated");
                if source {
                    read_file(package, &std::fs::read_to_string(&path)?, &mut structs)?;
                }
            }
        }
        Ok(Self { structs })
    }

    /// The fields of the component `name`, including those of inlined structs.
    pub(super) fn fields(&self, name: &str) -> BTreeMap<String, Field> {
        let Some(found) = self.structs.get(name) else { return BTreeMap::new() };
        let mut fields = found.fields.clone();
        for inlined in &found.inlined {
            for (name, field) in self.fields(inlined) {
                fields.entry(name).or_insert(field);
            }
        }
        fields
    }
}

/// `k8s.io/api/core/v1` → `io.k8s.api.core.v1`.
fn component_prefix(package: &str) -> String {
    package.replacen("k8s.io", "io.k8s", 1).replace('/', ".")
}

fn read_file(package: &str, source: &str, structs: &mut BTreeMap<String, Struct>) -> anyhow::Result<()> {
    let import = Regex::new(r#"^\s*(\w+)?\s*"(k8s\.io/[^"]+)"$"#)?;
    let declaration = Regex::new(r"^type (\w+) struct \{$")?;
    let member = Regex::new(r#"^\t(?:(\w+)\s+)?(\S+)\s+`.*json:"([^"]*)".*`"#)?;
    let mut imports = BTreeMap::new();
    let mut open: Option<(String, Struct)> = None;
    for line in source.lines() {
        if let Some(found) = import.captures(line) {
            let path = found[2].to_owned();
            let base = path.rsplit('/').next().unwrap_or_default().to_owned();
            imports.insert(found.get(1).map_or_else(|| base, |name| name.as_str().to_owned()), path);
        } else if let Some(found) = declaration.captures(line) {
            let name = format!("{}.{}", component_prefix(package), &found[1]);
            open = Some((name, Struct { fields: BTreeMap::new(), inlined: Vec::new() }));
        } else if line == "}"
            && let Some((name, done)) = open.take()
        {
            structs.insert(name, done);
        } else if let (Some((_, structure)), Some(found)) = (&mut open, member.captures(line)) {
            let (kind, tag) = (&found[2], &found[3]);
            let mut options = tag.split(',');
            let name = options.next().unwrap_or_default();
            let options: Vec<&str> = options.collect();
            if options.contains(&"inline") || (name.is_empty() && found.get(1).is_none()) {
                structure.inlined.push(component(package, &imports, kind.trim_start_matches('*')));
            } else if name != "-" {
                let field = Field {
                    kind: qualified(package, &imports, kind),
                    omit_empty: options.contains(&"omitempty"),
                    omit_zero: options.contains(&"omitzero"),
                };
                structure.fields.insert(name.to_owned(), field);
            }
        }
    }
    Ok(())
}

fn component(package: &str, imports: &BTreeMap<String, String>, kind: &str) -> String {
    match kind.split_once('.') {
        Some((alias, name)) => {
            let package = imports.get(alias).map_or(alias, String::as_str);
            format!("{}.{name}", component_prefix(package))
        }
        None => format!("{}.{kind}", component_prefix(package)),
    }
}

/// The type qualified by the last element of its package path, as Go prints types.
fn qualified(package: &str, imports: &BTreeMap<String, String>, kind: &str) -> String {
    for prefix in ["*", "[]", "map[string]"] {
        if let Some(inner) = kind.strip_prefix(prefix) {
            return format!("{prefix}{}", qualified(package, imports, inner));
        }
    }
    if let Some((keys, values)) = kind.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", qualified(package, imports, keys), qualified(package, imports, values));
    }
    let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match kind.split_once('.') {
        Some((alias, name)) => {
            format!("{}.{name}", imports.get(alias).map_or_else(|| alias.to_owned(), |path| base(path)))
        }
        None if kind.starts_with(char::is_uppercase) => format!("{}.{kind}", base(package)),
        None => kind.to_owned(),
    }
}
