use serde_json::json;

use super::*;

fn render(text: &str) -> Result<String, TemplateError> {
    let mut templates = Templates::default();
    templates.add("t", text)?;
    templates.add_content("files/a.yaml", "groups: [1]");
    let root = json!({"Values": {"name": "a b", "count": 2, "on": true, "off": false, "list": ["x", "y"],
        "map": {"k": "v", "a": "b"}, "empty": []}, "Files": {}});
    templates.render("t", &root)
}

#[test]
fn templates_mean_what_they_mean_to_helm() {
    for (text, expected) in [
        ("a {{ .Values.count }} b", "a 2 b"),
        ("a\n  {{- if .Values.on }}\n  x: 1\n  {{- end }}\nb", "a\n  x: 1\nb"),
        ("{{ if .Values.off }}1{{ else if eq .Values.count 2 }}2{{ else }}3{{ end }}", "2"),
        ("{{ if and .Values.on (not .Values.off) }}both{{ end }}", "both"),
        ("{{ range .Values.list }}<{{ . }}>{{ end }}", "<x><y>"),
        ("{{ range $k, $v := .Values.map }}{{ $k }}={{ $v }};{{ end }}", "a=b;k=v;"),
        ("{{ range .Values.empty }}x{{ else }}none{{ end }}", "none"),
        ("{{ with .Values.map }}{{ .k }}{{ $.Values.count }}{{ end }}", "v2"),
        ("{{ with .Values.empty }}x{{ else }}y{{ end }}", "y"),
        ("{{ $x := \"1\" }}{{ range .Values.list }}{{ $x = . }}{{ end }}{{ $x }}", "y"),
        ("{{ .Values.name | quote }} {{ .Values.none | default \"d\" }}", "\"a b\" d"),
        ("{{ join \", \" .Values.list }} {{ printf \"%s-%d%%\" .Values.name .Values.count }}", "x, y a b-2%"),
        (
            "{{ define \"d\" }}<{{ .Values.count }}>{{ end }}x: {{ include \"d\" . | nindent 2 }}",
            "x: \n  <2>",
        ),
        ("{{- /* a\ncomment */ -}}  x", "x"),
        ("{{ (fromYaml (.Files.Get \"files/a.yaml\")).groups | first }}", "1"),
        ("{{ .Files.Get \"files/none\" }}", ""),
        ("{{ splitList \"/\" \"a/b\" | last }}{{ len .Values.list }}", "b2"),
        ("{{ has \"x\" .Values.list }}{{ hasKey .Values.map \"z\" }}", "truefalse"),
        ("{{ (merge (dict \"a\" 1) (dict \"a\" 2 \"b\" 3)).b }}", "3"),
    ] {
        assert_eq!(render(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    for (text, expected) in [
        ("a\n{{ lookup \"v1\" }}", "t:2: there is no function \"lookup\" here"),
        ("{{ if .Values.on }}", "t:1: an if is not ended"),
        ("{{ end }}", "t:1: nothing is open for {{ end }}"),
        ("{{ .Values.none }}", "t: a value that does not exist is printed"),
        ("{{ .Values.name.first }}", "t: \"a b\" has no field first"),
        ("{{ include \"none\" . }}", "t: there is no template \"none\""),
        ("{{ fail \"no\" }}", "no"),
        ("{{ $y }}", "t: there is no variable $y"),
        ("{{ range .Values.name }}{{ end }}", "t: range over \"a b\""),
        ("{{ join 1 2 }}", "t: join does not take 1 2"),
        ("{{ .Values.map", "t:1: an action is not closed"),
    ] {
        assert_eq!(render(text).unwrap_err().to_string(), expected, "{text}");
    }
}
