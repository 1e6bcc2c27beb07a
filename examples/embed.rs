//! A `System` inside an existing actix-web service: a handler asks an agent, and the agent ends
//! with the server.

use std::error::Error;
use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, Responder, web};
use callboard::{Agent, AgentRef, Context, Handlers, Message, SyncHandler, System};

/// Draws the next ticket of the queue.
#[derive(Message)]
#[message(reply = u32, local)]
struct DrawTicket;

#[derive(Default)]
struct Desk {
    last: u32,
}

impl Agent for Desk {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<DrawTicket>();
    }
}

impl SyncHandler<DrawTicket> for Desk {
    fn handle(&mut self, _: DrawTicket, _: &mut Context) -> u32 {
        self.last += 1;
        self.last
    }
}

async fn draw(desk: web::Data<AgentRef>) -> impl Responder {
    match desk.ask(DrawTicket).within(Duration::from_secs(1)).await {
        Ok(ticket) => HttpResponse::Ok().body(format!("ticket {ticket}")),
        Err(why) => HttpResponse::ServiceUnavailable().body(why.to_string()),
    }
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The agents share this thread with the service. Handlers on any worker can reach them.
    let system = System::on_current_arbiter();
    let desk = web::Data::new(system.spawn_with(Desk::default));
    let app = move || App::new().app_data(desk.clone()).route("/tickets", web::post().to(draw));
    let server = HttpServer::new(app).workers(2).bind(("127.0.0.1", 0))?;
    let url = format!("http://{}/tickets", server.addrs().first().ok_or("bound to nothing")?);
    let server = server.run();
    let (handle, served) = (server.handle(), actix_web::rt::spawn(server));

    // Two visitors, then shutdown. A real service would only await `served`.
    for _ in 0..2 {
        let reply = reqwest::Client::new().post(&url).send().await?;
        println!("POST /tickets → {} {}", reply.status(), reply.text().await?);
    }
    handle.stop(true).await;
    served.await??;
    println!("{:?}", system.shutdown(Duration::from_secs(1)).await);
    Ok(())
}
