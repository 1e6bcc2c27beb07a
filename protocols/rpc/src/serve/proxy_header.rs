//! The PROXY protocol (versions 1 and 2): a header in front of a connection's data, in which a proxy
//! names the client.

use std::io;
use std::net::SocketAddr;

use ppp::{v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum size of a PROXY header of version 2 after its fixed part, in bytes. A connection with a
/// larger one is closed.
pub const PROXY_HEADER_BYTES_MAX: usize = 4 * 1024;

/// Length of a version 2 header's fixed part, whose last two bytes are the length of the rest.
const V2_FIXED_BYTES: usize = 16;
/// Maximum length of a version 1 header, with its line end (the protocol's section 2.1).
const V1_BYTES_MAX: usize = 107;

/// Reads the PROXY header at the beginning of a connection, and not one byte further. Returns the
/// client's address; `None` if the proxy connects for itself, for example to check the listener's
/// health, or for a client without an IP address.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the connection doesn't begin with a valid header; otherwise those
/// of the connection.
pub(super) async fn read_proxy_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<SocketAddr>> {
    let mut header = vec![0; v2::PROTOCOL_PREFIX.len()];
    stream.read_exact(&mut header).await?;
    if header == v2::PROTOCOL_PREFIX {
        read_v2(stream, header).await
    } else {
        read_v1(stream, header).await
    }
}

async fn read_v1(
    stream: &mut (impl AsyncRead + Unpin),
    mut line: Vec<u8>,
) -> io::Result<Option<SocketAddr>> {
    while !line.ends_with(b"\r\n") {
        if line.len() == V1_BYTES_MAX {
            return Err(invalid());
        }
        line.push(stream.read_u8().await?);
    }
    let header = v1::Header::try_from(&*line).map_err(|_| invalid())?;
    Ok(match header.addresses {
        v1::Addresses::Tcp4(of) => Some((of.source_address, of.source_port).into()),
        v1::Addresses::Tcp6(of) => Some((of.source_address, of.source_port).into()),
        v1::Addresses::Unknown => None,
    })
}

async fn read_v2(
    stream: &mut (impl AsyncRead + Unpin),
    mut header: Vec<u8>,
) -> io::Result<Option<SocketAddr>> {
    header.resize(V2_FIXED_BYTES, 0);
    stream
        .read_exact(&mut header[v2::PROTOCOL_PREFIX.len()..])
        .await?;
    let rest = usize::from(u16::from_be_bytes([header[14], header[15]]));
    if rest > PROXY_HEADER_BYTES_MAX {
        return Err(invalid());
    }
    header.resize(V2_FIXED_BYTES + rest, 0);
    stream.read_exact(&mut header[V2_FIXED_BYTES..]).await?;
    let header = v2::Header::try_from(&*header).map_err(|_| invalid())?;
    Ok(match (header.command, header.addresses) {
        (v2::Command::Local, _) => None,
        (_, v2::Addresses::IPv4(of)) => Some((of.source_address, of.source_port).into()),
        (_, v2::Addresses::IPv6(of)) => Some((of.source_address, of.source_port).into()),
        (_, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => None,
    })
}

fn invalid() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a connection of a trusted proxy doesn't begin with a valid PROXY header: have the proxy send it, or leave `proxy_protocol` out",
    )
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Reads a header in front of `GET`. Returns the client and what is left of the connection.
    fn read(header: &[u8]) -> io::Result<(Option<SocketAddr>, Vec<u8>)> {
        let sent = [header, b"GET"].concat();
        let mut stream = &*sent;
        let client = read_proxy_header(&mut stream).now_or_never().unwrap()?;
        Ok((client, stream.to_vec()))
    }

    fn v2_header(command: v2::Command, tlv_bytes: usize) -> Vec<u8> {
        let addresses = v2::IPv4::new([192, 0, 2, 7], [10, 0, 0, 1], 4711, 443);
        let tlv = vec![0; tlv_bytes.saturating_sub(3)];
        let builder = v2::Builder::with_addresses(
            v2::Version::Two | command,
            v2::Protocol::Stream,
            addresses,
        );
        match tlv_bytes {
            0 => builder.build().unwrap(),
            _ => builder
                .write_tlv(v2::Type::NoOp, &tlv)
                .unwrap()
                .build()
                .unwrap(),
        }
    }

    /// Goal: both versions name the client, nothing behind the header is read, and a proxy's own
    /// connections name nobody. Method: rows.
    #[test]
    fn clients_of_headers() {
        let client = Some("192.0.2.7:4711".parse().unwrap());
        let client6 = Some("[2001:db8::7]:4711".parse().unwrap());
        for (header, expected) in [
            (&b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n"[..], client),
            (b"PROXY TCP6 2001:db8::7 fd00::1 4711 443\r\n", client6),
            (b"PROXY UNKNOWN\r\n", None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
            (&v2_header(v2::Command::Proxy, 0), client),
            (&v2_header(v2::Command::Proxy, 100), client),
            (&v2_header(v2::Command::Local, 0), None),
        ] {
            let shown = String::from_utf8_lossy(header).into_owned();
            let read = read(header).unwrap();
            assert_eq!(read, (expected, b"GET".to_vec()), "{shown}");
        }
    }

    /// Goal: what isn't a header, or a larger one than allowed, is refused; the largest isn't. Method:
    /// rows; version 2 at its limit and one byte further; each beginning of a valid header.
    #[test]
    fn refused_headers() {
        for header in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4711\r\n",
            b"PROXY TCP4 192.0.2.777 10.0.0.1 4711 443\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 99999\r\n",
            &[b"PROXY UNKNOWN ", &[b'x'; V1_BYTES_MAX][..], b"\r\n"].concat(),
        ] {
            let error = read(header).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{header:?}");
        }
        let addresses = 12;
        let largest = v2_header(v2::Command::Proxy, PROXY_HEADER_BYTES_MAX - addresses);
        assert_eq!(largest.len(), V2_FIXED_BYTES + PROXY_HEADER_BYTES_MAX);
        assert!(read(&largest).is_ok());
        let larger = v2_header(v2::Command::Proxy, PROXY_HEADER_BYTES_MAX - addresses + 1);
        let error = read(&larger).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let whole = v2_header(v2::Command::Proxy, 0);
        for length in 0..whole.len() {
            let mut stream = &whole[..length];
            let read = read_proxy_header(&mut stream).now_or_never().unwrap();
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
