//! Content negotiation: selects the first media type of the `Accept` header that the server can produce.

use http::HeaderMap;

use crate::status::Status;

/// The form of an object or list in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The full objects.
    Plain,
    /// `meta.k8s.io/…, Kind=Table`.
    Table(MetaVersion),
    /// `meta.k8s.io/…, Kind=PartialObjectMetadata` or its list.
    Metadata(MetaVersion),
}

/// The version of `meta.k8s.io` of a `Table` or `PartialObjectMetadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The serialization of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Pretty,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) shape: Shape,
    pub(crate) encoding: Encoding,
}

impl Format {
    pub(crate) const JSON: Self = Self { shape: Shape::Plain, encoding: Encoding::Json };
}

/// One media range of an `Accept` header, with its parameters.
pub(crate) struct Accepted<'a> {
    pub(crate) media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Accepted<'_> {
    pub(crate) fn parameter(&self, key: &str) -> &str {
        self.parameters.iter().find(|(k, _)| *k == key).map_or("", |(_, value)| value)
    }
}

/// The media ranges of the `Accept` headers, in the order of the request.
pub(crate) fn accepted(headers: &HeaderMap) -> Vec<Accepted<'_>> {
    headers
        .get_all(http::header::ACCEPT)
        .iter()
        .filter_map(|header| header.to_str().ok())
        .flat_map(|header| header.split(','))
        .map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters = parts.filter_map(|p| p.split_once('=')).collect();
            Accepted { media, parameters }
        })
        .filter(|range| !range.media.is_empty())
        .collect()
}

/// The negotiated format, or 406 if the server supports none of the accepted ones.
pub(crate) fn format(headers: &HeaderMap, list: bool, pretty: bool) -> Result<Format, Status> {
    let ranges = accepted(headers);
    if ranges.is_empty() {
        let encoding = if pretty { Encoding::Pretty } else { Encoding::Json };
        return Ok(Format { shape: Shape::Plain, encoding });
    }
    for range in &ranges {
        let encoding = match range.media {
            "application/json" | "application/*" | "*/*" if pretty => Encoding::Pretty,
            "application/json" | "application/*" | "*/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => continue,
        };
        if let Some(shape) = shape(range, list) {
            return Ok(Format { shape, encoding });
        }
    }
    Err(Status::not_acceptable("application/json, application/yaml"))
}

fn shape(range: &Accepted<'_>, list: bool) -> Option<Shape> {
    let kind = range.parameter("as");
    if kind.is_empty() {
        return Some(Shape::Plain);
    }
    let version = match (range.parameter("g"), range.parameter("v")) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind {
        "Table" => Some(Shape::Table(version)),
        "PartialObjectMetadata" if !list => Some(Shape::Metadata(version)),
        "PartialObjectMetadataList" if list => Some(Shape::Metadata(version)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(accept: &str, list: bool) -> Option<Format> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, accept.parse().unwrap());
        format(&headers, list, false).ok()
    }

    #[test]
    fn the_first_supported_media_type_is_selected() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(negotiated(table, true).unwrap().shape, Shape::Table(MetaVersion::V1));
        let informer = "application/vnd.kubernetes.protobuf, application/json";
        assert_eq!(negotiated(informer, true), Some(Format::JSON));
        let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(negotiated(metadata, true).unwrap().shape, Shape::Metadata(MetaVersion::V1));
        assert_eq!(negotiated(metadata, false), None);
        assert_eq!(negotiated("text/html", false), None);
        assert_eq!(negotiated("text/html, */*;q=0.8", false), Some(Format::JSON));
    }
}
