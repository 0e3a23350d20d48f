"""WHO is in the job: environment variables in, a frozen cluster out; nothing is started or asked over the network."""
