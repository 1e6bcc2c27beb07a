//! Resources: three at fixed addresses, and a family.

use callboard::message::surface::{ListResourceTemplates, ListResources, ReadResource, ReadResourceResult};
use callboard::message::{Failure, RawObject, ResourceContent};
use callboard::{Cx, Handlers, SyncHandler};
use serde_json::json;

use crate::{Fixture, PIXEL};

pub fn register(on: &mut Handlers<Fixture>) {
    on.sync::<ListResources>().sync::<ListResourceTemplates>().sync::<ReadResource>();
}

impl SyncHandler<ListResources> for Fixture {
    fn handle(&mut self, _: ListResources, _: &mut Cx) -> Result<RawObject, Failure> {
        let resource = |name: &str, mime_type: &str| {
            let uri = format!("test://{name}");
            json!({ "uri": uri, "name": name, "description": "A resource for testing", "mimeType": mime_type })
        };
        let text = [resource("static-text", "text/plain"), resource("watched-resource", "text/plain")];
        let all: Vec<_> = text.into_iter().chain([resource("static-binary", "image/png")]).collect();
        Ok(RawObject::new().with("resources", all))
    }
}

impl SyncHandler<ListResourceTemplates> for Fixture {
    fn handle(&mut self, _: ListResourceTemplates, _: &mut Cx) -> Result<RawObject, Failure> {
        let address = "test://template/{id}/data";
        let family = json!({ "uriTemplate": address, "name": "template", "description": "Data by id" });
        Ok(RawObject::new().with("resourceTemplates", [family]))
    }
}

impl SyncHandler<ReadResource> for Fixture {
    fn handle(&mut self, wanted: ReadResource, _: &mut Cx) -> Result<ReadResourceResult, Failure> {
        let uri = wanted.uri();
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let content = match (&*uri, id) {
            ("test://static-text", _) => {
                ResourceContent::text(&uri, "text/plain", "This is the content of the static text resource.")
            }
            ("test://watched-resource", _) => ResourceContent::text(&uri, "text/plain", "Watched resource content"),
            ("test://static-binary", _) => ResourceContent::blob(&uri, "image/png", PIXEL),
            (_, Some(id)) => {
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                ResourceContent::text(&uri, "application/json", data.to_string())
            }
            _ => return Err(Failure::not_found(format!("there is no resource {uri}"))),
        };
        Ok(ReadResourceResult::of([content]))
    }
}
