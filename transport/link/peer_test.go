package link

// peerEnv is set for the other process of a test in which there are two.
const peerEnv = "AFSTREAM_LINK_PEER"

func runPeer() int { return 2 }
