package runtime

// Waiting returns how many callers wait for the pull of an image.
func (c *Client) Waiting(image string) int {
	c.pulls.mu.Lock()
	defer c.pulls.mu.Unlock()
	if f, ok := c.pulls.active[pullKey{image: image}]; ok {
		return f.waiters
	}
	return 0
}
