"""One comparison that answers a user's question: which method, on these records, under these limits?"""
