package rejoin.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static rejoin.netty.FakeShare.key;
import static rejoin.netty.FakeShare.keys;
import static rejoin.netty.Pairs.resumed;

import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.OpenSslSessionContext;
import io.netty.handler.ssl.OpenSslSessionStats;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslProvider;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import rejoin.TicketKeys;

/** Two servers that share tickets, before a share that may say anything. */
@Timeout(120)
class SharedTicketsTest {
  @TempDir Path folder;
  private Path socket;
  private SslContext one;
  private SslContext other;

  @BeforeEach
  void makeServers() throws Exception {
    socket = folder.resolve("share.sock");
    one = Pairs.server(folder, ClientAuth.NONE);
    other = Pairs.server(folder, ClientAuth.NONE);
  }

  @ParameterizedTest
  @ValueSource(strings = {"TLSv1.2", "TLSv1.3"})
  void aSessionResumesAtTheOther(String tls) throws Exception {
    try (SharedTickets first = follow(one); SharedTickets second = follow(other)) {
      SSLContext client = Pairs.client();
      assertFalse(resumed(client, one, tls));
      assertTrue(resumed(client, one, tls), "without a share each server opens its own tickets");
      assertFalse(resumed(client, other, tls), "and no others");
      try (FakeShare share = new FakeShare(socket, keys(1))) {
        awaitKeys(share, 2);
        resumesEverywhere(tls);
        SSLContext old = Pairs.client();
        resumed(old, one, tls);
        turn(share, keys(2, 1));
        resumesEverywhere(tls);
        assertTrue(resumed(old, other, tls), "the old key opens");
        assertTrue(resumed(old, one, tls), "and the ticket was renewed");
        turn(share, keys(3));
        assertFalse(resumed(old, one, tls), "a key that is gone opens nothing");
      }
      resumesEverywhere(tls);
    }
  }

  @Test
  void aShareThatRestartsIsFollowedAgain() throws Exception {
    try (SharedTickets first = follow(one); SharedTickets second = follow(other)) {
      try (FakeShare share = new FakeShare(socket, keys(1))) {
        awaitKeys(share, 2);
      }
      resumesEverywhere("TLSv1.3");
      try (FakeShare share = new FakeShare(socket, keys(2, 1))) {
        awaitKeys(share, 2);
        turn(share, keys(3, 2));
        resumesEverywhere("TLSv1.3");
      }
    }
  }

  @Test
  void noServerOutlivesItsKeys() throws Exception {
    int own = sessions(one).getSessionTimeout();
    assertTrue(own == 0 || own > 7, () -> "the server's own is " + own);
    try (FakeShare share = new FakeShare(socket, keys(1).replace("3600", "7")); SharedTickets followed = follow(one)) {
      awaitKeys(share, 1);
      assertEquals(7, sessions(one).getSessionTimeout());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {
      "", "[]", "{}", "{\"rejoin\":2,\"keys\":[]}", "{\"rejoin\":1}", "{\"rejoin\":1,\"keys\":[],\"ticket_lifetime_s\":1}",
      "{\"rejoin\":1,\"error\":{\"kind\":\"no_keys\",\"message\":\"later\"}}",
      "{\"rejoin\":1,\"keys\":[{\"key\":\"SHORT\",\"state\":\"encrypting\"}],\"ticket_lifetime_s\":1}",
      "{\"rejoin\":1,\"keys\":[{\"key\":\"RIGHT\",\"state\":\"opening\"}],\"ticket_lifetime_s\":1}",
      "{\"rejoin\":1,\"keys\":[{\"key\":\"RIGHT\",\"state\":\"encrypting\"}],\"ticket_lifetime_s\":0}",
      "{\"rejoin\":1,\"keys\":[{\"key\":\"RIGHT\",\"state\":\"encrypting\"}],\"ticket_lifetime_s\":604801}",
      "{\"rejoin\":1,\"keys\":[{\"key\":\"RIGHT\",\"state\":\"encrypting\"}]}", "LONG", "MANY"
  })
  void whatIsNoListChangesNothing(String answer) throws Exception {
    String said = switch (answer) {
      case "LONG" -> " ".repeat(256 * 1024 + 1);
      case "MANY" -> keys(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17);
      default -> answer.replace("SHORT", key(1, 47)).replace("RIGHT", key(1, 48));
    };
    try (FakeShare share = new FakeShare(socket, said); SharedTickets followed = follow(one)) {
      // It asks again because the first answer was no list.
      for (int time = 0; time < 2; time++) {
        assertEquals("{\"rejoin\":1,\"keys\":{\"context\":\"shop\",\"form\":\"raw48\"}}", share.asked.poll(30, TimeUnit.SECONDS));
      }
      assertEquals(0, sessions(one).stats().ticketKeyNew());
      SSLContext client = Pairs.client();
      assertFalse(resumed(client, one, "TLSv1.3"));
      assertTrue(resumed(client, one, "TLSv1.3"));
      assertEquals(0, sessions(one).stats().ticketKeyNew(), "the server's own keys are in use");
    }
  }

  @Test
  void whoAsksForCertificatesMustVouch() throws Exception {
    for (ClientAuth asks : new ClientAuth[] {ClientAuth.OPTIONAL, ClientAuth.REQUIRE}) {
      SslContext asking = Pairs.server(folder, asks);
      assertThrows(IllegalArgumentException.class, () -> follow(asking));
      SharedTickets.checkedAlike(asking, "shop", socket, null).close();
    }
  }

  @Test
  void onlyServersThatTakeKeysAreFollowed() throws Exception {
    SslContext ofTheJdk = Pairs.builder(folder).sslProvider(SslProvider.JDK).build();
    assertThrows(IllegalArgumentException.class, () -> follow(ofTheJdk));
    assertThrows(IllegalArgumentException.class, () -> SharedTickets.follow(one, ""));
    assertThrows(IllegalArgumentException.class, () -> SharedTickets.follow(one, "x".repeat(256)));
  }

  @Test
  void aKeyShowsNothing() {
    assertEquals("Key[redacted]", new TicketKeys.Key(new byte[16], new byte[16], new byte[16]).toString());
  }

  private SharedTickets follow(SslContext server) {
    return SharedTickets.follow(server, "shop", socket, null);
  }

  /** Waits until so many have asked, and have the first list. */
  private void awaitKeys(FakeShare share, int servers) throws Exception {
    for (int server = 0; server < servers; server++) {
      assertTrue(share.asked.poll(60, TimeUnit.SECONDS) != null, "nobody asks");
    }
    for (SslContext server : servers == 2 ? new SslContext[] {one, other} : new SslContext[] {one}) {
      await(() -> {
        long before = sessions(server).stats().ticketKeyNew();
        resumed(Pairs.client(), server, "TLSv1.3");
        return sessions(server).stats().ticketKeyNew() > before;
      });
    }
  }

  /**
   * Says another list, whose first key is new, and waits until both servers have it: then they renew old tickets, or open
   * none.
   */
  private void turn(FakeShare share, String list) throws Exception {
    SSLContext[] ofOne = visitors(one);
    SSLContext[] ofOther = visitors(other);
    share.say(list);
    awaitTurn(ofOne, one);
    awaitTurn(ofOther, other);
  }

  /** Two clients with a session each: one handshake may begin before a turn and end after it, and has nothing to renew. */
  private static SSLContext[] visitors(SslContext server) throws Exception {
    SSLContext[] clients = {Pairs.client(), Pairs.client()};
    for (SSLContext client : clients) {
      resumed(client, server, "TLSv1.3");
    }
    return clients;
  }

  private static void awaitTurn(SSLContext[] clients, SslContext server) throws Exception {
    OpenSslSessionStats stats = sessions(server).stats();
    long before = stats.ticketKeyRenew() + stats.ticketKeyFail();
    await(() -> {
      for (SSLContext client : clients) {
        resumed(client, server, "TLSv1.3");
      }
      return stats.ticketKeyRenew() + stats.ticketKeyFail() > before;
    });
  }

  private void resumesEverywhere(String tls) throws Exception {
    SSLContext client = Pairs.client();
    assertFalse(resumed(client, one, tls));
    for (SslContext server : new SslContext[] {other, one, other}) {
      assertTrue(resumed(client, server, tls));
    }
  }

  private static OpenSslSessionContext sessions(SslContext server) {
    return (OpenSslSessionContext) server.sessionContext();
  }

  private interface Condition {
    boolean holds() throws Exception;
  }

  private static void await(Condition condition) throws Exception {
    for (int time = 0; !condition.holds(); time++) {
      assertTrue(time < 600, "it does not happen");
      TimeUnit.MILLISECONDS.sleep(100);
    }
  }
}
