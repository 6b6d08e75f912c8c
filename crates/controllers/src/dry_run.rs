//! Creates the objects of an AppWrapper in a dry run, for `muster plan`: the API server accepts any template in an
//! AppWrapper, and refuses an invalid object at the dispatch only.

use api::Meta;
use api::appwrapper::{Group, Spec, render};
use index::{Kind, wire};
use kube::Client;
use serde_json::Value;

use crate::api_calls::ResourcePath;
use crate::discovery::Resources;
use crate::error::Error;

/// Why the API server would refuse one of the objects of an AppWrapper, if it would. What may change until the dispatch
/// is not checked: permissions, quotas, kinds that are not installed and objects that exist. A spec that cannot be
/// parsed has no objects.
pub async fn refused_object(
    client: &Client,
    group: Group,
    namespace: &str,
    manifest: &Value,
) -> Result<Option<String>, Error> {
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let Ok(spec) = Spec::read(&manifest["spec"], &name) else { return Ok(None) };
    let meta = Meta { name, namespace: namespace.to_owned(), ..Meta::default() };
    for (position, template) in spec.objects().enumerate() {
        let mut object = match render::render(group, &meta, template, position, None) {
            Ok(object) => object,
            Err(error) => return Ok(Some(error.to_string())),
        };
        // The AppWrapper does not exist, and not every author may refer to it.
        if let Some(fields) = object["metadata"].as_object_mut() {
            fields.remove("ownerReferences");
        }
        if let Some(cause) = refusal(client, &object).await? {
            return Ok(Some(cause));
        }
    }
    Ok(None)
}

/// Why the API server refuses this object in a dry run, if it does.
async fn refusal(client: &Client, object: &Value) -> Result<Option<String>, Error> {
    let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = Kind::new(field(&object["apiVersion"]), field(&object["kind"]));
    if kind.form_error().is_some() {
        return Ok(None);
    }
    let resources = Resources::read(client, &kind.api_version).await?;
    let Some((plural, true)) = resources.resource(&kind) else { return Ok(None) };
    let path = ResourcePath::of(&kind, plural, &field(&object["metadata"]["namespace"]));
    match path.create_dry_run::<wire::Object>(client, object).await {
        // Admission may decide otherwise later.
        Err(Error::Refused(why)) if !why.contains("is forbidden: ") => {
            Ok(Some(format!("{} {}: {why}", kind.kind, field(&object["metadata"]["name"]))))
        }
        Err(error @ Error::Unreachable(_)) => Err(error),
        Ok(_) | Err(_) => Ok(None),
    }
}
