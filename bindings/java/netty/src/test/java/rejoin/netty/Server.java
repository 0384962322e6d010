package rejoin.netty;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * A server of HTTP/1.0 that shares its tickets: prints its port, and ends with its standard input. Its words are the
 * certificate's file, the key's, the share's socket, and, if it asks for client certificates, the authority's file.
 */
public final class Server {
  private static final byte[] ANSWER = "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n".getBytes(StandardCharsets.US_ASCII);

  private Server() {}

  /**
   * Serves.
   *
   * @param words as above
   * @throws Exception if it cannot
   */
  public static void main(String[] words) throws Exception {
    SslContextBuilder builder = SslContextBuilder.forServer(new File(words[0]), new File(words[1]))
        .sslProvider(SslProvider.OPENSSL);
    boolean asks = words.length > 3;
    if (asks) {
      builder.trustManager(new File(words[3])).clientAuth(ClientAuth.REQUIRE);
    }
    SslContext server = builder.build();
    Path socket = Path.of(words[2]);
    EventLoopGroup loops = new MultiThreadIoEventLoopGroup(2, NioIoHandler.newFactory());
    try (SharedTickets shared = asks ? SharedTickets.checkedAlike(server, "netty", socket, null)
        : SharedTickets.follow(server, "netty", socket, null)) {
      InetSocketAddress address = (InetSocketAddress) listening(loops, server).bind("127.0.0.1", 0).sync().channel().localAddress();
      System.out.println(address.getPort());
      while (System.in.read() >= 0) {
        continue;
      }
    } finally {
      loops.shutdownGracefully();
    }
  }

  private static ServerBootstrap listening(EventLoopGroup loops, SslContext server) {
    return new ServerBootstrap().group(loops).channel(NioServerSocketChannel.class)
        .childHandler(new ChannelInitializer<SocketChannel>() {
          @Override
          protected void initChannel(SocketChannel channel) {
            channel.pipeline().addLast(server.newHandler(channel.alloc()), new Answer());
          }
        });
  }

  private static final class Answer extends SimpleChannelInboundHandler<ByteBuf> {
    @Override
    protected void channelRead0(ChannelHandlerContext to, ByteBuf request) {
      to.writeAndFlush(Unpooled.wrappedBuffer(ANSWER)).addListener(ChannelFutureListener.CLOSE);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext to, Throwable problem) {
      System.err.println(problem);
      to.close();
    }
  }
}
