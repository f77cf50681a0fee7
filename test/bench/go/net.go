package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

func init() {
	wholes["EchoServer"] = echoServer
}

func serveConnection(c net.Conn) {
	defer c.Close()
	var buffer [512]byte
	for {
		if c.SetReadDeadline(time.Now().Add(5*time.Second)) != nil {
			return
		}
		got, err := c.Read(buffer[:])
		if err != nil {
			return
		}
		if _, err := c.Write(buffer[:got]); err != nil {
			return
		}
	}
}

// control answers each line of the input with the CPU time used so far, and stops the server at its
// end.
func control(l net.Listener) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Printf("cpu %d\n", cpu())
	}
	l.Close()
}

func echoServer() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err == nil, "listen: %v", err)
	fmt.Printf("listening %d\n", l.Addr().(*net.TCPAddr).Port)
	go control(l)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		check(err == nil, "accept: %v", err)
		go serveConnection(c)
	}
}
